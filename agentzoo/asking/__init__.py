"""Asking masked agents about windows of steps: one answer for all that is hidden, or whole histories drawn."""
