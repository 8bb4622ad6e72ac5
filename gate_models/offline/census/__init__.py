"""The census: every prompt, switch point and arm, continued many times."""
