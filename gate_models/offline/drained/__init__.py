"""Thresholds of the `drained` gate: calibration, audit and tables."""
