"""Who can be asked: models, functions, remote servers, and simulated ones."""
