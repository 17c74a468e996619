"""The server's paths and their handlers."""
