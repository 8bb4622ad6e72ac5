"""What answers look like in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Final

from astargate_client.display import replay
from astargate_client.transport.reply import Reply
from astargate_client.wire import (
    CommittorJob,
    CommittorResult,
    GateResult,
    GenerateResponse,
    Interval,
    Proportion,
    Sample,
    Trace,
)

SHOWN = 80
"""Characters of a text."""
COLUMNS: Final = 6
LINES: Final = 20
CELL: Final = 32
"""Characters of one field in a list."""


def verdict(satisfied: bool | None) -> str:
    """A mark for a constraint's outcome; empty without a constraint."""
    return "" if satisfied is None else "✓ " if satisfied else "✗ "


def decision(gate: GateResult) -> str:
    """What became of guidance."""
    if gate.decision == "handoff" and gate.handoff_step is not None:
        return f"handoff at step {gate.handoff_step}"
    return {"full_cfg": "guided to the end", "base": "never guided"}.get(gate.decision, gate.decision)


def evidence(gate: GateResult) -> str:
    """What is known of the gate, and what it was measured to lose."""
    lost = gate.measured_loss
    if lost is None:
        return f"evidence {gate.evidence}"
    return f"evidence {gate.evidence}, loss {lost.loss:+.2f} [{lost.low:+.2f}, {lost.high:+.2f}]"


def sample(answer: Sample) -> str:
    """One line: verdict, text, rows, gate."""
    rows = answer.forward_evaluations
    shown = shorten(answer.text, SHOWN, placeholder="…")
    return (
        f"{answer.index}: {verdict(answer.satisfied)}{shown!r} "
        f"({rows.total} of {rows.full_cfg_equivalent} rows, {decision(answer.gate)}, "
        f"{evidence(answer.gate)})"
    )


def totals(samples: Sequence[Sample]) -> str:
    """Outcomes and rows of several samples."""
    spent = sum(one.forward_evaluations.total for one in samples)
    full = sum(one.forward_evaluations.full_cfg_equivalent for one in samples)
    judged = [one for one in samples if one.satisfied is not None]
    met = f"{sum(bool(one.satisfied) for one in judged)} of {len(judged)} satisfied, " if judged else ""
    return f"{met}{spent} rows where full CFG takes {full}"


def response(answer: GenerateResponse) -> str:
    """A headline and a line a sample."""
    head = f"<GenerateResponse {answer.id} ({answer.model}, {answer.policy.preset}): {totals(answer.samples)}>"
    return "\n".join([head, *(f"  {sample(one)}" for one in answer.samples)])


def trace(run: Trace) -> str:
    """The canvas of every step, a line each."""
    lines = [
        f"{step.step:>4} {step.phase:<6} {canvas}"
        for step, canvas in zip(replay.recorded_steps(run), replay.canvases(run), strict=True)
    ]
    return "\n".join([f"<Trace of {len(lines)} steps, {len(run.tokens)} positions>", *lines])


def interval(share: Interval | Proportion) -> str:
    """An estimate with its interval."""
    return f"{share.estimate:.2f} [{share.low:.2f}, {share.high:.2f}]"


def horizon(measured: CommittorResult) -> str:
    """a* in words; empty where no horizon was asked for."""
    if measured.horizon is None:
        return ""
    where = "censored" if measured.horizon.censored else f"step {measured.horizon.step}"
    return f"a* {where}, fate {measured.handoff_fate}"


def result(measured: CommittorResult) -> str:
    """A line a state: q0, qg and what guidance is worth."""
    lines = [
        f"  step {point.step:>3}: q0 {interval(point.q0)}  qg {interval(point.qg)}  V {interval(point.value)}"
        for point in measured.points
    ]
    head = f"<CommittorResult of {measured.forward_evaluations} rows {horizon(measured)}".rstrip()
    return "\n".join([f"{head}>", *lines])


def listing(name: str, rows: Sequence[Reply]) -> str:
    """A headline and a line for each of the first rows: their fields that are words or numbers."""
    head = f"<{name} of {len(rows)}>"
    names = [name for name in (type(rows[0]).model_fields if rows else ()) if any(_short(one, name) for one in rows)]
    shown = [names[:COLUMNS], *([_short(one, name) for name in names[:COLUMNS]] for one in rows[:LINES])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in shown]
    more = [f"  ... {len(rows) - LINES} more"] if len(rows) > LINES else []
    return "\n".join([head, *(f"  {line}" for line in lines if rows), *more])


def _short(row: Reply, name: str) -> str:
    value = getattr(row, name)
    return shorten(str(value), CELL, placeholder="...") if isinstance(value, str | int | float) else ""


def job(measurement: CommittorJob) -> str:
    """Status and progress, then the result."""
    done = measurement.progress
    head = f"<CommittorJob {measurement.id} {measurement.status}, {done.rollouts} of {done.rollouts_total} rollouts>"
    return head if measurement.result is None else f"{head}\n{result(measurement.result)}"
