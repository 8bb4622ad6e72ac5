"""A recorded run, played again: its steps, its repair rounds and the canvas after each step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pydantic import Field

from astargate_client.display.canvas import Canvas
from astargate_client.transport.reply import Reply
from astargate_client.wire import Trace


class TraceStep(Reply):
    """One denoising step; what else the server records of it is there as attributes."""

    step: int
    phase: str
    positions: list[int]
    tokens: list[int]
    pieces: list[str]
    confidence: list[float]
    masked: int
    """Masked positions before the step."""
    filled: list[int] = Field(default_factory=list)


class Resumption(Reply):
    """Where a run went on from another canvas than its last step's: a repair round, or a further attempt."""

    index: int
    """Steps before it."""
    canvas: list[int]
    """Token ids, the mask's where undecided."""
    reopened: list[int]
    """Committed positions that were masked again."""
    attempt: int
    round: int


def recorded_steps(trace: Trace) -> list[TraceStep]:
    """The steps, with typed fields."""
    return [TraceStep.model_validate(step) for step in trace.steps]


def resumptions(trace: Trace) -> list[Resumption]:
    """Repair rounds and further attempts, with typed fields."""
    return [Resumption.model_validate(turn) for turn in trace.resumed]


def canvases(trace: Trace) -> Iterator[Canvas]:
    """The canvas after each step; one object that goes on changing."""
    steps = recorded_steps(trace)
    pieces = dict(zip(trace.tokens, trace.pieces, strict=True))
    pieces |= {token: piece for step in steps for token, piece in zip(step.tokens, step.pieces, strict=True)}
    turns = {turn.index: turn for turn in resumptions(trace)}
    canvas = Canvas(len(trace.tokens))
    for row, step in enumerate(steps):
        if row in turns:
            turn = turns[row]
            canvas.resume(turn.canvas, [pieces.get(token, "") for token in turn.canvas], turn.reopened)
        canvas.commit(step)
        yield canvas


def handoff_rows(trace: Trace) -> list[int]:
    """Indices of base steps after a guided one: once, or more often where guidance comes back."""
    starts = {turn.index for turn in resumptions(trace)}
    return [
        row
        for row, (before, after) in enumerate(pairwise(recorded_steps(trace)), start=1)
        if (before.phase, after.phase) == ("guided", "base") and row not in starts
    ]
