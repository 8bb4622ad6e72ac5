"""Prompt sets: how the benchmark data become tasks of this project."""
