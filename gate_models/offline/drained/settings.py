"""What a calibration of the `drained` gate decodes: its prompts, its sampling and its guidance-first order."""

from __future__ import annotations

from dataclasses import dataclass


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
