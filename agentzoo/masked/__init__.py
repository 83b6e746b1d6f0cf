"""Questions, goals and waypoints: what only masked networks support."""
