"""Minari datasets: read them, build them, and sample windows from them."""
