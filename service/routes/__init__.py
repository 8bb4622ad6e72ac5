"""The HTTP routes: one file a concern, each with a `router`."""
