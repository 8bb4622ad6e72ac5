"""Models: what the decoder asks of one, and the architectures that can be loaded."""
