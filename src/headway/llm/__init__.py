"""LLM: a model and its verbs, in Python."""
