"""How a text is read before it is tested: its words, and the phrases that stand in it."""
