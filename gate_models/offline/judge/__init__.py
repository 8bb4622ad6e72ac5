"""The judge of readability: what a strict reader accepts, learned from labels."""
