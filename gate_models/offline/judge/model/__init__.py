"""The judge itself: a language model, what is read off it, and the learned weights."""
