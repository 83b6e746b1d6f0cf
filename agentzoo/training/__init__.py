"""One training loop for every family."""
