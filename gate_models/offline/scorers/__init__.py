"""Scorers of finished texts: fluency and sentiment."""
