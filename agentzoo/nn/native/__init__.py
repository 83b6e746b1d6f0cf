"""Everything in C, and its yardstick in PyTorch."""
