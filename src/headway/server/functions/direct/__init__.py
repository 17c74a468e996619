"""What answers calls of functions before the framework does."""
