"""Experiments of the papers, run again: several trainings, measured alike and drawn side by side."""
