"""One loop for every family."""
