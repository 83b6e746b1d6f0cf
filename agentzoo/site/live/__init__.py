"""`live.html`: agents that run in the visitor's browser."""
