"""What a fit learns, as a small JSON file: weights over standardised features, a threshold, and what they rest on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Weights:
    """Logistic regression: p = 1 / (1 + exp(-(intercept + sum_f weight_f (x_f - mean_f) / deviation_f))).

    With `end_weight` the last column of x is `end` = end_intercept + end_weight . state, of the state [E] that the
    language model holds after a text's last token (`features.ends`).
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weight: tuple[float, ...]
    intercept: float
    threshold: float
    """A text is readable from this probability on."""
    end_weight: tuple[float, ...] = ()
    end_intercept: float = 0.0

    def probabilities(
        self, matrix: NDArray[np.float64], ends: NDArray[np.float32] | None = None
    ) -> NDArray[np.float64]:
        """Of rows [n, F] in the order of `features` (`end` aside) and states [n, E]."""
        if self.end_weight:
            if ends is None:
                raise ValueError("this judge reads states of text ends too; give `ends`")
            column = ends @ np.array(self.end_weight) + self.end_intercept
            matrix = np.column_stack([matrix, column])
        scaled = (matrix - np.array(self.mean)) / np.array(self.deviation)
        logits = scaled @ np.array(self.weight) + self.intercept
        probabilities: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-logits))
        return probabilities

    def save(self, path: Path, facts: dict[str, Any]) -> None:
        """`facts`: what it was made from (hashes, versions) and how well it agrees."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**asdict(self), **facts}, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> tuple[Weights, dict[str, Any]]:
    """Weights and facts. Raises `ValueError` for a file that is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        own = {name: content.pop(name) for name in Weights.__slots__}
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is no judge ({error}); make one with astargate judge-fit") from None
    lists = {name: tuple(value) for name, value in own.items() if isinstance(value, list)}
    return Weights(**{**own, **lists}), content
