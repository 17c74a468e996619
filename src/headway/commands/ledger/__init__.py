"""`headway ledger`: queries, exports, checks and costs of a ledger."""
