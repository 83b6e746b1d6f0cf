"""The parts of `Agent.predict`: read observations, track rewards, keep histories, run the network."""
