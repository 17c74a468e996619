"""One rule per cause. A rule asks one question about the evidence."""
