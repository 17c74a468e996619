"""Limits of a key: requests per minute, concurrent requests, tokens and money."""
