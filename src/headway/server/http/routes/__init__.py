"""The server's paths, and what is done for a request to each."""
