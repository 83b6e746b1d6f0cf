"""Experiments of the papers: several trainings, measured in the same way and plotted side by side."""
