"""Sequences, groups of them, and the roster of the waiting and the running."""
