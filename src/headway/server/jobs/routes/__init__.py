"""The paths: files, batches, and calls that are answered later."""
