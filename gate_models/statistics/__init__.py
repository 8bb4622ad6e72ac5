"""Intervals and tests: bootstrap, Wilson, betting confidence sequences, fixed-sequence testing."""
