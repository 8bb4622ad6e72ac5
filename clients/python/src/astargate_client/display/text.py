"""What answers look like in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def verdict(satisfied: bool | None) -> str:
    """A mark for a constraint's outcome; empty without a constraint."""
    return "" if satisfied is None else "✓ " if satisfied else "✗ "


def decision(gate: GateResult) -> str:
    """What became of guidance."""
    if gate.decision == "handoff" and gate.handoff_step is not None:
        return f"handoff at step {gate.handoff_step}"
    return {"full_cfg": "guided to the end", "base": "never guided"}.get(gate.decision, gate.decision)


def sample(found: Sample) -> str:
    """One line: verdict, text, rows, gate."""
    rows = found.forward_evaluations
    shown = shorten(found.text, SHOWN, placeholder="…")
    return (
        f"{found.index}: {verdict(found.satisfied)}{shown!r} "
        f"({rows.total} of {rows.full_cfg_equivalent} rows, {decision(found.gate)})"
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


def trace(found: Trace) -> str:
    """The canvas of every step, a line each."""
    lines = [
        f"{step.step:>4} {step.phase:<6} {canvas}"
        for step, canvas in zip(found.recorded_steps(), found.canvases(), strict=True)
    ]
    return "\n".join([f"<Trace of {len(lines)} steps, {len(found.tokens)} positions>", *lines])


def interval(found: Interval | Proportion) -> str:
    """An estimate with its interval."""
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"


def horizon(found: CommittorResult) -> str:
    """a* in words; empty where no horizon was asked for."""
    if found.horizon is None:
        return ""
    where = "censored" if found.horizon.censored else f"step {found.horizon.step}"
    return f"a* {where}, fate {found.handoff_fate}"


def result(found: CommittorResult) -> str:
    """A line a state: q0, qg and what guidance is worth."""
    lines = [
        f"  step {point.step:>3}: q0 {interval(point.q0)}  qg {interval(point.qg)}  V {interval(point.value)}"
        for point in found.points
    ]
    head = f"<CommittorResult of {found.forward_evaluations} rows {horizon(found)}".rstrip()
    return "\n".join([f"{head}>", *lines])


def job(found: CommittorJob) -> str:
    """Status and progress, then the result."""
    done = found.progress
    head = f"<CommittorJob {found.id} {found.status}, {done.rollouts} of {done.rollouts_total} rollouts>"
    return head if found.result is None else f"{head}\n{result(found.result)}"
