"""The census: guided runs of every prompt, continued many times from many steps, with guidance and without."""
