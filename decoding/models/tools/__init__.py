"""Tools around models: small random checkpoints for tests, and estimates of memory and time."""
