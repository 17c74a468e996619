"""Prometheus metrics: under vLLM's names, and by lane under headway's own."""
