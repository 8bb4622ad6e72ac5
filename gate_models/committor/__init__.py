"""Committors: the chance that a text will meet its constraint, estimated by rollouts."""
