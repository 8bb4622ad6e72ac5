"""One denoising step: logits to tokens, the order of commits, noise and the schedule of blocks."""
