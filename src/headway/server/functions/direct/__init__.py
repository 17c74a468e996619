"""Answers calls of functions before the framework does."""
