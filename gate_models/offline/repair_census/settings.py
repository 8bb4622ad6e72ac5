"""What a repair census measures: its prompts, the selectors that it compares and how often it samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from decoding.policy.repair import SELECTORS, Selector

PAPER_SELECTORS: Final[tuple[Selector, ...]] = (
    "committor",
    "truncated_committor",
    "leave_one_out",
    "guidance_disagreement",
    "commit_confidence",
)
ADDED_SELECTORS: Final[tuple[Selector, ...]] = ("constraint_aware", "keyword_argmax", "random", "restart")


@dataclass(frozen=True, slots=True)
class RepairCensusSettings:
    """What a repair census is made from; the first line of its file."""

    subtasks: tuple[str, ...]
    """Families of prompts, or `all`."""
    prompts: int | None = None
    """Prompts a subtask; None: all it has."""
    seeds: int = 2
    """Recorded runs of each prompt that no census has frozen."""
    continuations: int = 10
    """Of every arm, of every cell of the freeze sweep, and of each candidate in the committor selectors."""
    counts: tuple[int, ...] = (1, 3)
    """K, the numbers of positions that an arm reopens."""
    selectors: tuple[Selector, ...] = (*PAPER_SELECTORS, *ADDED_SELECTORS)
    """What chooses the reopened positions: the paper's selectors and those that we added."""
    most: int | None = None
    """Limit of runs a subtask and population that are intervened on; further ones are only counted. None: all."""
    seed: int = 0
    """Seed of everything."""
    weight: float = 2.0
    """Guidance scale."""
    model: str = "mini"
    """`mini` or a checkpoint folder."""
    device: str = "cpu"
    """Torch device, such as cpu or cuda:0."""
    threads: int = 1
    """Torch threads of the process."""
    max_rows: int = 64
    """Rows of one forward pass."""
    invariant: bool = True
    """The same bits whatever shares the batch; slower at light load."""

    def __post_init__(self) -> None:
        for name in self.selectors:
            if name not in SELECTORS:
                raise ValueError(f"selector {name!r} is unknown; selectors: {', '.join(SELECTORS)}")
        if not self.counts or min(self.seeds, self.continuations, *self.counts) < 1:
            raise ValueError("seeds, continuations and counts must be at least 1, and at least one count is needed")
        if self.most is not None and self.most < 1:
            raise ValueError("most must be at least 1")
