"""Prometheus metrics: vLLM's names, and those of the lanes."""
