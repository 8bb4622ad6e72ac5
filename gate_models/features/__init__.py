"""Features: what a learned gate sees of a run so far."""
