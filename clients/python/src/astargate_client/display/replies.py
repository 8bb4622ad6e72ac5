"""What answers can do beyond holding fields: base classes of the generated wire types."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from pydantic import Field

from astargate_client.display import html, text
from astargate_client.display.canvas import Canvas
from astargate_client.transport.reply import Reply

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from astargate_client import wire


class _Shown(Reply):
    """Prints as it is shown in a terminal."""

    def __str__(self) -> str:
        return repr(self)


class ForwardEvaluationsBehaviour(Reply):
    @property
    def saved_share(self) -> float:
        """`saved` as a share of full CFG; negative where the policy cost more."""
        rows = cast("wire.ForwardEvaluations", self)
        return rows.saved / rows.full_cfg_equivalent


class SampleBehaviour(_Shown):
    def __repr__(self) -> str:
        return f"<Sample {text.sample(cast('wire.Sample', self))}>"

    def _repr_html_(self) -> str:
        return html.samples([cast("wire.Sample", self)])


class GenerateResponseBehaviour(_Shown):
    @property
    def text(self) -> str:
        """Text of the first sample."""
        return cast("wire.GenerateResponse", self).samples[0].text

    def __repr__(self) -> str:
        return text.response(cast("wire.GenerateResponse", self))

    def _repr_html_(self) -> str:
        return html.response(cast("wire.GenerateResponse", self))


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


class TraceBehaviour(_Shown):
    def recorded_steps(self) -> list[TraceStep]:
        """The steps, with typed fields."""
        return [TraceStep.model_validate(step) for step in cast("wire.Trace", self).steps]

    def resumptions(self) -> list[Resumption]:
        """Repair rounds and further attempts, with typed fields."""
        return [Resumption.model_validate(one) for one in cast("wire.Trace", self).resumed]

    def canvases(self) -> Iterator[Canvas]:
        """The canvas after each step; one object that goes on changing."""
        trace, steps = cast("wire.Trace", self), self.recorded_steps()
        pieces = dict(zip(trace.tokens, trace.pieces, strict=True))
        pieces |= {token: piece for step in steps for token, piece in zip(step.tokens, step.pieces, strict=True)}
        turns = {turn.index: turn for turn in self.resumptions()}
        canvas = Canvas(len(trace.tokens))
        for row, step in enumerate(steps):
            if row in turns:
                turn = turns[row]
                canvas.resume(turn.canvas, [pieces.get(token, "") for token in turn.canvas], turn.reopened)
            canvas.commit(step)
            yield canvas

    def handoff_rows(self) -> list[int]:
        """Indices of base steps after a guided one: once, or more often where guidance comes back."""
        steps = self.recorded_steps()
        starts = {turn.index for turn in self.resumptions()}
        return [
            row
            for row, (before, after) in enumerate(pairwise(steps), start=1)
            if (before.phase, after.phase) == ("guided", "base") and row not in starts
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the canvas step by step: time downwards, one column a position. Needs `astargate-client[plot]`."""
        _need_matplotlib()
        from astargate_client.display.plot import draw  # noqa: PLC0415  (loads matplotlib)

        return draw(cast("wire.Trace", self), ax)

    def __repr__(self) -> str:
        return text.trace(cast("wire.Trace", self))

    def _repr_html_(self) -> str:
        return html.trace(cast("wire.Trace", self))


class ListBehaviour(Reply):
    def _repr_html_(self) -> str:
        return html.table(cast("wire.ModelList", self).data)


class CommittorJobBehaviour(_Shown):
    def __repr__(self) -> str:
        return text.job(cast("wire.CommittorJob", self))

    def _repr_html_(self) -> str:
        return html.job(cast("wire.CommittorJob", self))


class CommittorResultBehaviour(_Shown):
    def __repr__(self) -> str:
        return text.result(cast("wire.CommittorResult", self))

    def _repr_html_(self) -> str:
        return html.result(cast("wire.CommittorResult", self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw q0 and qg over the run, with their intervals and a*. Needs `astargate-client[plot]`."""
        _need_matplotlib()
        from astargate_client.curve_plot import draw  # noqa: PLC0415  (loads matplotlib)

        return draw(cast("wire.CommittorResult", self), ax)


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plot() needs matplotlib: pip install 'astargate-client[plot]'")
