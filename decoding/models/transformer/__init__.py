"""What LLaDA and Dream share: blocks, key and value cache, chat templates, weight files."""
