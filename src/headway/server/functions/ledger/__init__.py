"""What the ledger is told of functions."""
