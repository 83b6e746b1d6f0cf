"""What only masked networks support: inference about windows, goals and waypoints."""
