"""Gates that are trained on measured runs: their files, where they hold, and how they decide."""
