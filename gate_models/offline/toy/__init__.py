"""A model small enough to enumerate: exact answers for the tests."""
