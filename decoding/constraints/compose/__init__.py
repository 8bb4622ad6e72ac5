"""Constraints that are made of others: all, any or none of them must hold."""
