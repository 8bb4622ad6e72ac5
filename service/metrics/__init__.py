"""Prometheus metrics: their definitions, and the code that counts."""
