"""Minari datasets: reading, building, and drawing windows from them."""
