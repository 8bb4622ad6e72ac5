"""One request in the engine: its job, its canvas, its checks and its estimated cost."""
