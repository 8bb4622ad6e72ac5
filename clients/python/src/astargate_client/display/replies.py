"""The server's answers as a user meets them: the generated fields, and how they print, list and plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from astargate_client import wire
from astargate_client.display import html, replay, text
from astargate_client.display.canvas import Canvas
from astargate_client.transport.reply import Reply

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # an optional dependency


class _Shown:
    """Prints as it is shown in a terminal."""

    def __str__(self) -> str:
        return repr(self)


class ForwardEvaluations(wire.ForwardEvaluations):
    @property
    def saved_share(self) -> float:
        """`saved` as a share of full CFG; negative where the policy cost more."""
        return self.saved / self.full_cfg_equivalent


class Trace(_Shown, wire.Trace):
    def recorded_steps(self) -> list[replay.TraceStep]:
        """The steps, with typed fields."""
        return replay.recorded_steps(self)

    def resumptions(self) -> list[replay.Resumption]:
        """Repair rounds and further attempts, with typed fields."""
        return replay.resumptions(self)

    def canvases(self) -> Iterator[Canvas]:
        """The canvas after each step; one object that goes on changing."""
        return replay.canvases(self)

    def handoff_rows(self) -> list[int]:
        """Indices of base steps after a guided one: once, or more often where guidance comes back."""
        return replay.handoff_rows(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the canvas step by step: time downwards, one column a position. Needs `astargate-client[plot]`."""
        _need_matplotlib()
        from astargate_client.display.plot import draw_trace  # noqa: PLC0415  (loads matplotlib)

        return draw_trace(self, ax)

    def __repr__(self) -> str:
        return text.trace(self)

    def _repr_html_(self) -> str:
        return html.trace(self)


class Sample(_Shown, wire.Sample):
    forward_evaluations: ForwardEvaluations
    trace: Trace | None = None

    def __repr__(self) -> str:
        return f"<Sample {text.sample(self)}>"

    def _repr_html_(self) -> str:
        return html.samples([self])


class GenerateResponse(_Shown, wire.GenerateResponse):
    # To a type checker a list of a subclass is no list of the class, since one could append to it. Answers are frozen.
    samples: list[Sample]  # type: ignore[assignment]

    @property
    def text(self) -> str:
        """Text of the first sample."""
        return self.samples[0].text

    def __repr__(self) -> str:
        return text.response(self)

    def _repr_html_(self) -> str:
        return html.response(self)


class CommittorResult(_Shown, wire.CommittorResult):
    def __repr__(self) -> str:
        return text.result(self)

    def _repr_html_(self) -> str:
        return html.result(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw q0 and qg over the run, with their intervals and a*. Needs `astargate-client[plot]`."""
        _need_matplotlib()
        from astargate_client.display.plot import draw_switch_curve  # noqa: PLC0415  (loads matplotlib)

        return draw_switch_curve(self, ax)


class CommittorJob(_Shown, wire.CommittorJob):
    result: CommittorResult | None

    def __repr__(self) -> str:
        return text.job(self)

    def _repr_html_(self) -> str:
        return html.job(self)


class _Rows(Protocol):
    @property
    def data(self) -> Sequence[Reply]: ...


class _Listing(_Shown):
    """Is a table, in a notebook as in a terminal."""

    def __repr__(self: _Rows) -> str:
        return text.listing(type(self).__name__, self.data)

    def _repr_html_(self: _Rows) -> str:
        return html.table(self.data)


class CommittorJobList(_Listing, wire.CommittorJobList):
    data: list[CommittorJob]  # type: ignore[assignment]


class HorizonList(_Listing, wire.HorizonList): ...


class ModelList(_Listing, wire.ModelList): ...


class GateList(_Listing, wire.GateList): ...


class GateAuditList(_Listing, wire.GateAuditList): ...


class PolicyList(_Listing, wire.PolicyList): ...


class ConstraintList(_Listing, wire.ConstraintList): ...


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plot() needs matplotlib: pip install 'astargate-client[plot]'")
