"""Records of a run: trace, statistics of a step, ledger of rows, events."""
