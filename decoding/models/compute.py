"""Thread count and floating-point mode for a stretch of work, put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def compute_mode(threads: int) -> Iterator[None]:
    """Run torch with `threads` threads and denormals flushed to zero on this thread (they slow a CPU down tenfold)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
