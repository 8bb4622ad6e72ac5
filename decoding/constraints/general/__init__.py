"""Constraints for requests of every kind: regular expressions, phrases, sizes, labels and tests in Python."""
