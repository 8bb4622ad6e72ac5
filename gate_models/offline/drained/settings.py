"""What a calibration of the `drained` gate decodes: its prompts, its sampling and its guidance-first order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

POOLED_TASKS: Final = ("all", "few-keywords", "word-count", "no-comma", "held-out-wording", "ccg-multi-mixed")
"""The paper's families, and ordinary requests beside them."""


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """What is calibrated, and on how much."""

    tasks: tuple[str, ...]
    """Families of the thresholds, or `all`."""
    prompts: int | None = 100
    """Prompts a task, the first ones outside the audit set. None: those whose runs are there, nothing is decoded."""
    samples: int = 1
    """Texts a prompt."""
    seed: int = 5000
    """Seed of the decoded runs."""
    guidance_scale: float = 2.0
    """Guidance scale of the decoded runs."""
    temperature: float = 1.0
    """Sampling temperature of the decoded runs."""
    boost_threshold: float = 0.8
    """Rise in probability at which the guidance-first order commits a token at once."""
    guided_width: int = 8
    """Limit of positions that one guided step of the guidance-first order commits; above 1."""


@dataclass(frozen=True, slots=True)
class PooledSettings:
    """How much a pooled threshold is measured on."""

    tasks: tuple[str, ...] = POOLED_TASKS
    """Families and tasks whose prompts are drawn from in turn."""
    pairs: int = 1000
    """Pairs of texts, each in a setting of its own."""
    templates: int = 150
    """Requests to fill blanks that are added to the pairs."""
    seed: int = 7000
    """Seed of the settings and of the decoded runs."""
    margin: float = 0.05
    """Success that the pooled threshold may lose, at the upper end of its 95 % interval."""

    def __post_init__(self) -> None:
        if self.pairs < 40:
            raise ValueError("a pooled threshold needs at least 40 pairs; some thousands make it sharp")
        if not 0.0 < self.margin < 1.0:
            raise ValueError("margin must be between 0 and 1, such as 0.05")
