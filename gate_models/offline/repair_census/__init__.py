"""The repair census: every way to choose positions of a failed text, on the same failed runs."""
