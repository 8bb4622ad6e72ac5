"""The repair census: every selector on the same failed runs."""
