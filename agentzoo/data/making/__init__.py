"""How our datasets are made, and how others' data is imported."""
