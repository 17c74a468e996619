"""Make the ledger's rows of calls, and remember the latest."""
