"""The HTTP edge: translate, call the engine, translate back."""
