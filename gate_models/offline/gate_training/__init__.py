"""Training of learned gates from a census."""
