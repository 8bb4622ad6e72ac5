"""Offline work: training, evaluation and studies. Nothing here runs in a server."""
