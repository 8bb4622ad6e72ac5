"""The settings of an evaluation. The command line offers each field as an option; nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gate_models.offline.benchmarks.splits import SPLITS

ABLATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "whole_words": {"continuation_ids": frozenset()},
    "text_margins": {"text_margins": (0.0, 0.0)},
}
"""Parts of the decoder that can be left out, and the model's facts without which they do nothing."""

JUDGES: Final = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """What an evaluation is made from; written into its result."""

    tasks: tuple[str, ...]
    """Families (tasks of the benchmarks), or `all`."""
    policies: tuple[str, ...]
    """Policies, such as base,full_cfg,handoff:0.3:k8,policy,value:0.002:k8."""
    weights: tuple[float, ...] = ()
    """Guidance scales to sweep, such as 0,1,2,4; empty: that of each policy."""
    n: int | None = None
    """Prompts of a family."""
    splits: tuple[str, ...] = ()
    """Only the prompts of these sets among them: train, calibrate, audit."""
    samples: int = 1
    """Texts of a prompt."""
    seed: int = 0
    """Seed of every text."""
    canvas: int | None = None
    """Canvas and steps of every prompt."""
    temperature: float = 1.0
    """Sampling temperature."""
    without: tuple[str, ...] = ()
    """Parts of guidance-first orders that are left out: `whole_words`, the rules that end a started word under
    guidance; `text_margins`, the rule that fills a canvas's ends last.
    """
    block_length: int | None = None
    """Semi-autoregressive blocks."""
    model: str = "mini"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    max_rows: int = 64
    invariant: bool = False
    fluency_model: str | None = None
    """Local folder of a causal language model that judges fluency."""
    judge: str = "auto"
    """Whether texts are judged readable: auto (where the extra `judge` is installed), on, off."""
    judge_cache: str | None = None
    """File that keeps what the judge read for the next run."""
    census: str | None = None
    """Folder of the census whose horizons policy `recorded` hands off at."""

    def __post_init__(self) -> None:
        known = [name for name, _ in SPLITS]
        for name in self.splits:
            if name not in known:
                raise ValueError(f"prompt set {name!r} is unknown; sets: {', '.join(known)}")
        if self.judge not in JUDGES:
            raise ValueError(f"judge {self.judge!r} is unknown; one of: {', '.join(JUDGES)}")
        for name in self.without:
            if name not in ABLATIONS:
                raise ValueError(f"{name!r} cannot be left out; {', '.join(ABLATIONS)} can")
