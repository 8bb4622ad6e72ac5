"""How much is measured for gates of one's own tasks. The command line offers each field; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdaptSettings:
    """The size of the census, of the training and of the audit."""

    rollouts: int = 8
    """N: continuations from each measured state, with guidance and without."""
    samples: int = 4
    """Fresh texts of each audit prompt."""
    tail_widths: tuple[int, ...] = (1,)
    """Tail widths that gates are made for; 1 is always there."""
    gen_length: int | None = None
    """Canvas length in tokens; gates serve it alone."""
    margin: float = 0.05
    """Success that a gate may lose, at the upper end of its 95 % interval, to be recommended."""
    trees: int = 200
    """Trees of the forests."""
    seed: int = 0
    """Seed of everything."""

    def __post_init__(self) -> None:
        if not 0.0 < self.margin < 1.0:
            raise ValueError("margin must be between 0 and 1, such as 0.05")
        if any(width < 1 for width in self.tail_widths):
            raise ValueError("tail widths must be at least 1")

    @property
    def widths(self) -> tuple[int, ...]:
        """The tail widths in order, 1 first."""
        return tuple(sorted({1, *self.tail_widths}))
