"""The ledger's rows of calls, as they are made and remembered."""
