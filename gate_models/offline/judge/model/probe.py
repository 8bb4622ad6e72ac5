"""A small network over the language model's hidden states: how odd each token is where it stands.

Surprisal says how unlikely a token was; the state after it also knows what kind of oddness that is (a doubled phrase, a
word of another text, a missing article). `train_probe` learns it from sentences by people, such sentences spoiled, and
unlabelled texts of the model; none of them is on the label sheet.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gate_models.offline.judge.model.files import artifact_folder

LAYER: Final = 18
"""Of SmolLM2's 30: the state after so many layers."""
WIDTH: Final = 576
HIDDEN: Final = 16
EXTRAS: Final = 2
SCALE: Final = 5.0


class Probe(nn.Module):
    """z = b' relu(A [norm(state), surprisal / 5, (unigram surprisal - surprisal) / 5])."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH + EXTRAS, HIDDEN)
        self.second = nn.Linear(HIDDEN, 1)
        self.pool = nn.Linear(3, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, nats: Tensor, unigrams: Tensor) -> Tensor:
        """Oddness [...] of tokens: states [..., d], surprisals and unigram surprisals [...]."""
        normed = nn.functional.layer_norm(states.float(), (WIDTH,))
        extras = torch.stack([nats, unigrams - nats], -1) / SCALE
        hidden = torch.relu(self.first(self.dropout(torch.cat([normed, extras], -1))))
        odd: Tensor = self.second(self.dropout(hidden)).squeeze(-1)
        return odd

    def pooled(self, odd: Tensor, real: Tensor) -> Tensor:
        """Logit [B] that a text is by people, from its tokens' oddness [B, T]; `real` [B, T]: no padding."""
        kept = odd.masked_fill(~real, 0.0)
        total = kept.sum(1)
        largest = torch.logsumexp(odd.masked_fill(~real, -1e4), 1)
        pooled: Tensor = self.pool(torch.stack([total / real.sum(1), largest, total / 10.0], 1)).squeeze(-1)
        return pooled

    def logit(self, odd: NDArray[np.float32]) -> float:
        """Of one text; 0 for an empty one."""
        if not len(odd):
            return 0.0
        with torch.inference_mode():
            return float(self.pooled(torch.from_numpy(odd.copy())[None], torch.ones(1, len(odd), dtype=torch.bool)))

    def save(self, path: Path) -> None:
        np.savez_compressed(path, **{name: value.detach().numpy() for name, value in self.state_dict().items()})

    @staticmethod
    def load(path: Path) -> Probe:
        probe = Probe()
        with np.load(path) as stored:
            probe.load_state_dict({name: torch.from_numpy(stored[name]) for name in stored.files})
        return probe.eval().requires_grad_(False)


def probe_file() -> Path:
    """The shipped probe."""
    return artifact_folder() / "probe.npz"


@cache
def shipped_probe() -> Probe:
    return Probe.load(probe_file())


def probe_hash(probe: Probe) -> str:
    """The first digits of the SHA-256 of its weights."""
    digest = hashlib.sha256()
    for name, value in sorted(probe.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()[:8]
