"""The percentile bootstrap with prompts as the unit: an interval for a mean over prompts, and for a paired difference.

The samples of one prompt depend on each other, so that whole prompts are resampled (Appendix C.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.statistics.intervals import Estimate

REPLICATES: Final = 2000


def by_prompt(samples: Sequence[Mapping[str, Any]], value: str = "satisfied") -> dict[str, float]:
    """Mean of a value over the evaluated samples of each prompt."""
    samples_of: dict[str, list[float]] = {}
    for sample in samples:
        samples_of.setdefault(sample["prompt_id"], []).append(sample[value])
    return {prompt: float(np.mean(values)) for prompt, values in samples_of.items()}


def bootstrap(
    values: NDArray[np.float64], *, seed: int = 0, replicates: int = REPLICATES, confidence: float = 0.95
) -> Estimate:
    """Mean of per-prompt values [P] with its percentile interval. Raises `ValueError` where there is none."""
    if values.size == 0:
        raise ValueError("no prompts to resample")
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[rng.integers(values.size, size=(min(256, replicates - start), values.size))].mean(1)
            for start in range(0, replicates, 256)
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(values.mean()), float(low), float(high), "prompt_bootstrap")


def difference_of_success(values: NDArray[np.float64]) -> Estimate:
    """Mean of per-prompt differences of success [P], each in [-1, 1], with an interval that is never empty.

    The interval counts one prompt more that is lost and one more that is gained (Agresti and Min 2005): without them a
    few prompts that all agree would show a difference of exactly nothing. Raises `ValueError` where there is no prompt.
    """
    if values.size == 0:
        raise ValueError("no prompts to resample")
    return replace(bootstrap(np.append(values, [1.0, -1.0])), value=float(values.mean()))


def paired_bootstrap(values: Mapping[Any, float], reference: Mapping[Any, float]) -> Estimate:
    """Mean of `values` less `reference` over the prompts that both have. Raises `ValueError` where they share none."""
    shared = sorted(values.keys() & reference.keys())
    return bootstrap(np.array([values[prompt] - reference[prompt] for prompt in shared]))
