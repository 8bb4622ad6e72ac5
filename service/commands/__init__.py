"""One command a module: a light signature, and imports inside the function for what is heavy."""
