"""Building blocks of the networks; nothing here knows an agent, a dataset or an environment."""
