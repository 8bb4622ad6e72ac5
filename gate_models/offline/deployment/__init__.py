"""Policies as a server would run them: cascades, and their success at a number of rows."""
