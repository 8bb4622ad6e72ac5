"""Benchmarks of speed: throughput, latency and precision of the shipped model."""
