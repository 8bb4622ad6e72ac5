"""A switch curve as a picture: what base and guided continuation reach from each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib import pyplot
from matplotlib.axes import Axes

from astargate_client.palette import FRESH, INK

if TYPE_CHECKING:
    from astargate_client.wire import CommittorResult

_SHIFT: Final = 0.004
"""Moves the arms apart, so that equal ones do not hide each other."""


def draw(result: CommittorResult, ax: Axes | None = None) -> Axes:
    """Draw `result` on `ax`, or on a new figure."""
    if ax is None:
        _, ax = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    fractions = [point.fraction for point in result.points]
    for label, colour, shift, shares in (
        ("qg, guided", FRESH["guided"], -_SHIFT, [point.qg for point in result.points]),
        ("q0, base", FRESH["base"], _SHIFT, [point.q0 for point in result.points]),
    ):
        where = [fraction + shift for fraction in fractions]
        estimates = [share.estimate for share in shares]
        errors = [[one.estimate - one.low for one in shares], [one.high - one.estimate for one in shares]]
        ax.errorbar(where, estimates, yerr=errors, label=label, color=colour, marker="o", capsize=3)
    if result.horizon is not None and result.horizon.fraction is not None:
        ax.axvline(result.horizon.fraction, color=INK, linewidth=1.2, linestyle="--", label="a*")
    ax.set_xlabel("fraction of the run")
    ax.set_ylabel("constraint met")
    ax.set_ylim(-0.02, 1.02)
    ax.legend(frameon=False)
    return ax
