"""One file a concern; each has a `router`."""
