"""Sequences, groups of them, and who waits and who runs."""
