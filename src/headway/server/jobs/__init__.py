"""Files, batches, and calls that are answered later. Needs the extra `jobs`."""
