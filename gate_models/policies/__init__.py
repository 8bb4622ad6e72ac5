"""Policies by name, and the learned cascades of the preset `auto`."""
