"""The HTTP paths of files, batches, and calls that are answered later."""
