"""How the judge is fitted, and how far it can be trusted."""
