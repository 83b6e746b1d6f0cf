"""Rollouts, scores and intervals, records of them, sweeps over targets, videos and pictures."""
