"""Learned gates and everything that measures them; `offline` holds what no server runs."""
