"""The ledger of a server: a row for each request, and what each key spends."""
