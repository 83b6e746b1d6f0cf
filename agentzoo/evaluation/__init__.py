"""Rollouts, scores with intervals, their records, sweeps over target returns, videos and figures."""
