"""Texts that must be JSON, and the part of JSON Schema that they may have to meet."""
