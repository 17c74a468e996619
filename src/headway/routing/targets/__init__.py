"""The targets of a route: models, functions, remote servers, and simulated servers."""
