"""The engine: one thread that batches the next step of many requests through the model."""
