"""What only masked networks can be asked."""
