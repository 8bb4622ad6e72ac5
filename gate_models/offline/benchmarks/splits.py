"""The three disjoint prompt sets of every benchmark: gates learn on one, are set on another and judged on the third."""

from __future__ import annotations

import hashlib
from typing import Final

SPLITS: Final = (("train", 0.40), ("calibrate", 0.35), ("audit", 0.25))
"""Three disjoint prompt sets and their shares: gates learn, are set and are judged on different prompts."""

SPLIT_SEED: Final = 0
"""Seed of the shipped census, behind the learned gates: other measurements of the shipped prompts keep its sets."""


def split_of(seed: int, task: str, prompt: str) -> str:
    """The prompt set of a prompt: a function of the seed and its name alone, stable when prompts are added."""
    digest = hashlib.blake2b(f"{seed}\x1f{task}\x1f{prompt}".encode(), digest_size=8).digest()
    at = int.from_bytes(digest) / 2**64
    for name, share in SPLITS:
        if at < share:
            return name
        at -= share
    return SPLITS[-1][0]
