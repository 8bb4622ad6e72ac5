"""Audits of learned gates on prompts that trained nothing."""
