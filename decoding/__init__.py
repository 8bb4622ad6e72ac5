"""The decoder of masked diffusion language models: sampling, policies, engine, models, constraints."""
