"""Pictures of answers, for those who have matplotlib: the run of a sample, and a measured switch curve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from astargate_client.display import replay
from astargate_client.display.canvas import FRESH, INK, MASK, colour
from astargate_client.wire import CommittorResult, Trace

_LABELS: Final = {
    "guided": "committed under guidance",
    "base": "committed by the base decoder",
    "filled": "filled",
    "restored": "restored",
}
_LARGEST: Final = (40.0, 30.0)
"""Inches."""
_POINTS: Final = 72.0
_SHIFT: Final = 0.004
"""Moves the arms of a switch curve apart, so that equal ones do not hide each other."""


def draw_trace(trace: Trace, ax: Axes | None = None) -> Axes:
    """Draw `trace` on `ax`, or on a new figure that is large enough to read.

    Time goes downwards, a column is a position, and each token stands in the step that committed it.
    """
    steps = replay.recorded_steps(trace)
    length = len(trace.tokens)
    longest = max((len(piece) for step in steps for piece in step.pieces), default=1)
    if ax is None:
        size = (1.5 + length * min(max(0.09 * longest, 0.35), 0.9), 1.6 + 0.3 * len(steps))
        _, ax = pyplot.subplots(figsize=tuple(map(min, size, _LARGEST)), layout="constrained")
    picture = np.empty((len(steps), length, 3))
    phases = dict.fromkeys(step.phase for step in steps)
    for row, canvas in enumerate(replay.canvases(trace)):
        picture[row] = to_rgb(MASK)
        for position, cell in canvas.cells.items():
            picture[row, position] = to_rgb(colour(cell.phase, fresh=position in canvas.fresh))
            phases[cell.phase] = None
    ax.imshow(picture, aspect="auto", interpolation="nearest", extent=(-0.5, length - 0.5, len(steps) - 0.5, -0.5))
    _write_tokens(ax, trace)
    _mark_turns(ax, trace)
    _finish(ax, trace, phases)
    return ax


def _write_tokens(ax: Axes, trace: Trace) -> None:
    """Each token where it was committed, as large as its cell allows; none where it could not be read."""
    steps = replay.recorded_steps(trace)
    box = ax.get_window_extent()
    scale = _POINTS / ax.figure.dpi
    width, height = box.width * scale / len(trace.tokens), box.height * scale / max(len(steps), 1)
    for row, step in enumerate(steps):
        for position, piece in zip(step.positions, step.pieces, strict=True):
            size = min(0.62 * height, 1.5 * width / max(len(piece), 1), 10.0)
            if size >= 4.5:
                ax.text(position, row, _shown(piece), ha="center", va="center", fontsize=size, color=INK,
                        parse_math=False)  # fmt: skip


def _shown(piece: str) -> str:
    """White space made visible."""
    return piece.replace("\n", "⏎").replace("\t", "⇥") or "␣"


def _mark_turns(ax: Axes, trace: Trace) -> None:
    """A line where guidance ended, a dashed one where positions were reopened."""
    steps = replay.recorded_steps(trace)
    for row in replay.handoff_rows(trace):
        _line(ax, row, "-", f"handoff before step {steps[row].step}")
    for turn in replay.resumptions(trace):
        _line(ax, turn.index, "--", f"{len(turn.reopened)} reopened, round {turn.round}")


def _line(ax: Axes, row: int, style: str, words: str) -> None:
    ax.axhline(row - 0.5, color=INK, linewidth=1.5, linestyle=style)
    ax.annotate(words, (1.0, row - 0.5), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8)  # fmt: skip


def _finish(ax: Axes, trace: Trace, phases: Iterable[str]) -> None:
    """Axes, grid and legend."""
    steps, length = replay.recorded_steps(trace), len(trace.tokens)
    every = max(1, len(steps) // 32)
    ax.set_yticks(range(0, len(steps), every), [str(step.step) for step in steps[::every]])
    ax.set_xticks(range(0, length, max(1, length // 32)))
    ax.set_xticks(np.arange(length + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(steps) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=0.8)
    ax.tick_params(which="both", length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel("position")
    ax.set_ylabel("denoising step")
    handles = [Patch(color=FRESH.get(phase, INK), label=_LABELS.get(phase, phase)) for phase in phases]
    ax.legend(handles=[*handles, Patch(color=MASK, label="masked")], loc="lower center", bbox_to_anchor=(0.5, 1.0),
              ncols=4, frameon=False, fontsize=8)  # fmt: skip


def draw_switch_curve(result: CommittorResult, ax: Axes | None = None) -> Axes:
    """Draw what base and guided continuation reach from each state on `ax`, or on a new figure."""
    if ax is None:
        _, ax = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    fractions = [point.fraction for point in result.points]
    for label, line_colour, shift, shares in (
        ("qg, guided", FRESH["guided"], -_SHIFT, [point.qg for point in result.points]),
        ("q0, base", FRESH["base"], _SHIFT, [point.q0 for point in result.points]),
    ):
        where = [fraction + shift for fraction in fractions]
        estimates = [share.estimate for share in shares]
        errors = [[one.estimate - one.low for one in shares], [one.high - one.estimate for one in shares]]
        ax.errorbar(where, estimates, yerr=errors, label=label, color=line_colour, marker="o", capsize=3)
    if result.horizon is not None and result.horizon.fraction is not None:
        ax.axvline(result.horizon.fraction, color=INK, linewidth=1.2, linestyle="--", label="a*")
    ax.set_xlabel("fraction of the run")
    ax.set_ylabel("constraint met")
    ax.set_ylim(-0.02, 1.02)
    ax.legend(frameon=False)
    return ax
