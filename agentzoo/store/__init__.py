"""Files: names, tensors, finding agents, downloads from the Hub."""
