"""The ledger of a server: what is kept of each request, and what a key may spend."""
