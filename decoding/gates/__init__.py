"""Gates: what decides when a request stops paying for guidance."""
