"""Verified repair: a text that fails its predicate is reopened, or decoded again by other means, within a budget."""
