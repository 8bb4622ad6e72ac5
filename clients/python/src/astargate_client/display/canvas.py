"""The text of one sample while it is decoded: the token at each position, and its colour in notebooks and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

MASKED: Final = "·"
FILLED: Final = "filled"
RESTORED: Final = "restored"

INK: Final = "#1a1a1a"
MASK: Final = "#e9e9ea"
"""The colour of a position that is still undecided."""
FRESH: Final[Mapping[str, str]] = {"guided": "#f28e2b", "base": "#5b9bd5", "filled": "#b7b7b9", "restored": "#86bf7e"}
"""Committed in the step that is shown, by phase. Orange and blue stay apart for every kind of sight."""
KEPT: Final[Mapping[str, str]] = {"guided": "#fbdcbb", "base": "#d2e4f4", "filled": "#d6d6d8", "restored": "#d3e8cf"}
"""Committed before."""


def colour(phase: str | None, *, fresh: bool) -> str:
    """Of a position by the phase that committed it; None where it is masked."""
    if phase is None:
        return MASK
    return (FRESH if fresh else KEPT).get(phase, MASK)


class CommittingStep(Protocol):
    """A step of a stream or of a trace."""

    @property
    def phase(self) -> str: ...
    @property
    def positions(self) -> Sequence[int]: ...
    @property
    def pieces(self) -> Sequence[str]: ...
    @property
    def filled(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Cell:
    """A committed position."""

    piece: str
    phase: str
    """`guided`, `base`, `filled` behind an end-of-text, or `restored` from an earlier text."""


class Canvas:
    """Cells by position; what has none is masked."""

    def __init__(self, length: int = 0) -> None:
        self.cells: dict[int, Cell] = {}
        self.fresh: frozenset[int] = frozenset()
        """Positions that the last step committed."""
        self._length = length

    def commit(self, step: CommittingStep) -> None:
        """Take over what a step has committed."""
        for position, piece in zip(step.positions, step.pieces, strict=True):
            self.cells[position] = Cell(piece, step.phase)
        for position in step.filled:
            self.cells[position] = Cell("", FILLED)
        self.fresh = frozenset((*step.positions, *step.filled))

    def resume(self, tokens: Sequence[int], pieces: Sequence[str], reopened: Sequence[int]) -> None:
        """Go on from another canvas, where the `reopened` positions hold the mask token."""
        mask = {tokens[position] for position in reopened}
        for position, (token, piece) in enumerate(zip(tokens, pieces, strict=True)):
            if token in mask:
                self.cells.pop(position, None)
            elif position not in self.cells or self.cells[position].piece not in {piece, ""}:
                self.cells[position] = Cell(piece, RESTORED)
        self._length = max(self._length, len(tokens))
        self.fresh = frozenset()

    def __len__(self) -> int:
        """Positions, as far as they are known."""
        return max(self._length, 1 + max(self.cells, default=-1))

    @property
    def pieces(self) -> list[str | None]:
        """One display string a position; None where it is masked."""
        return [self.cells[i].piece if i in self.cells else None for i in range(len(self))]

    def __str__(self) -> str:
        return " ".join(MASKED if piece is None else piece for piece in self.pieces)

    def __repr__(self) -> str:
        return f"<Canvas {len(self.cells)} of {len(self)}: {self}>"
