"""Commands of offline work: they train, measure and compare, and may import `gate_models.offline`."""
