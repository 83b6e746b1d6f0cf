"""What `Agent.predict` is made of: observations read, rewards counted, histories kept, the network asked."""
