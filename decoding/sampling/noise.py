"""Counter-based noise: every uniform is a function of its key alone, never of a global generator or of the batch.

key = (seed, purpose, arm, rollout, round), counter = (step, stream), index = response-relative position. The generator
is Philox-4x64 (Salmon et al. 2011, as shipped by NumPy), keyed by a BLAKE2b hash of the key.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE: Final = 0
ORDER: Final = 1
LARGEST: Final = 1.0 - 2.0**-53
"""The largest uniform that is drawn: mirrored ones stay in [0, 1), exactly."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names one independent noise field over (step, position).

    `purpose` ("generate", "rollout", ...), `arm` (any cell label, such as "base@0.30"), `rollout` and `round` keep the
    cells of a census and the rounds of a repair independent under one seed.
    """

    seed: int
    purpose: str = "generate"
    arm: str = ""
    rollout: int = 0
    round: int = 0
    mirrored: bool = False
    """1 - u in place of every u: the antithetic partner of the same key."""
    _words: tuple[int, int] = field(init=False, repr=False, compare=False, default=(0, 0))

    def __post_init__(self) -> None:
        text = f"{self.purpose}\x1f{self.arm}".encode()
        head = struct.pack("<qqq", self.seed, self.rollout, self.round)
        digest = hashlib.blake2b(head + text, digest_size=16).digest()
        object.__setattr__(self, "_words", struct.unpack("<QQ", digest))

    def with_round(self, number: int) -> NoiseKey:
        """The same key for another repair round."""
        return replace(self, round=number)

    def uniforms(self, step: int, length: int, stream: int = SAMPLE) -> NDArray[np.float64]:
        """Uniforms in [0, 1) for positions 0..length-1 of one step; a longer canvas has the same leading values."""
        key = np.array(self._words, dtype=np.uint64)
        counter = np.array([0, step, stream, 0], dtype=np.uint64)
        drawn = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(length)
        return LARGEST - drawn if self.mirrored else drawn
