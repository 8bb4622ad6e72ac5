"""The summaries that a trace keeps of one step, from its candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decoding.records.trace import Summary
from decoding.sampling.kernel import Candidates


def drained_stats(candidates: Candidates, left: NDArray[np.bool_], started: NDArray[np.bool_]) -> dict[str, Any]:
    """What is kept of every guided step: the largest total variation over the positions that stay masked (`left` [M]),
    and whether one of those stands in a `started` word.
    """
    variation = candidates.total_variation.double().numpy()[left]
    return {
        "total_variation_left": float(variation.max()) if variation.size else None,
        "word_open": bool(started.any()),
    }


def summaries(
    candidates: Candidates, confidence: NDArray[np.float64], entropy: NDArray[np.float64], *, guided: bool
) -> dict[str, Any]:
    """Statistics of the candidates [M], and of what is committed so far at the values it had (`confidence` and
    `entropy` [L], NaN where undecided).
    """
    stats: dict[str, Any] = {
        "masked_confidence": Summary.of(candidates.probability.double().numpy()),
        "masked_entropy": Summary.of(candidates.entropy.double().numpy()),
        "committed_confidence": Summary.of(confidence[~np.isnan(confidence)]),
        "committed_entropy": Summary.of(entropy[~np.isnan(entropy)]),
    }
    if guided and candidates.token.numel():
        variation = candidates.total_variation.double().numpy()
        stats |= {
            "kl": Summary.of(candidates.kl.double().numpy()),
            "total_variation_max": float(variation.max()),
            "total_variation_mean": float(variation.mean()),
            "boost_max": float(candidates.boost.max()),
        }
    return stats
