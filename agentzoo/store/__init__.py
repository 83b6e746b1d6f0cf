"""Files: names, tensors, locating agents, the Hub from this side."""
