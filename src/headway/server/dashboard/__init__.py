"""The live page at /dashboard."""
