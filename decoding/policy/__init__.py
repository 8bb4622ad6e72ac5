"""Policies: what a request may ask of the decoder, checked when built."""
