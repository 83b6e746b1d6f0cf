"""Rollouts, normalized scores and intervals."""
