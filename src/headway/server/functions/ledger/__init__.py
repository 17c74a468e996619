"""What the ledger records of functions."""
