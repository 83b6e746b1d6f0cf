"""Pre-training: small language and text-image models in the formats of transformers, for agents to start from."""
