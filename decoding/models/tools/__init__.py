"""Small random checkpoints in the layout of published models, for tests and for trials."""
