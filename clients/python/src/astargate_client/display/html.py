"""What answers look like in a notebook. Everything that comes from a text is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from pydantic import TypeAdapter

from astargate_client.display import replay, text
from astargate_client.display.canvas import INK, MASKED, Canvas, colour
from astargate_client.transport.reply import Reply
from astargate_client.wire import CommittorJob, CommittorResult, GenerateResponse, Sample, Trace

_ANY: Final = TypeAdapter[Any](Any)
LEFT_OUT: Final = frozenset({"json_schema"})
"""Fields that a table has no room for: they are as long as a page."""
_LEFT: Final = "text-align:left;vertical-align:top"
_CELL: Final = f"padding:1px 4px;border:1px solid #fff;color:{INK};font:12px monospace;white-space:nowrap"


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f'<{tag} style="{_LEFT}">{cell}</{tag}>' for cell in cells) + "</tr>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"<table>{_row(map(escape, head), 'th')}{''.join(map(_row, rows))}</table>"


def samples(answers: Sequence[Sample]) -> str:
    """A row a sample: text, checks, rows, gate."""
    rows = []
    for sample in answers:
        checks = "<br>".join(
            f'<span title="{escape(check.detail)}">{text.verdict(check.satisfied)}{escape(check.name)}</span>'
            for check in sample.checks
        )
        spent = sample.forward_evaluations
        gate = f"{escape(text.decision(sample.gate))}<br><small>{escape(text.evidence(sample.gate))}</small>"
        if sample.gate.fallback_reason:
            gate += f"<br><small>{escape(sample.gate.fallback_reason)}</small>"
        rows.append(
            [
                str(sample.index),
                f"{text.verdict(sample.satisfied)}{escape(sample.text)}",
                checks,
                f"{spent.total} of {spent.full_cfg_equivalent}",
                gate,
                str(sample.seed),
            ]
        )
    return _table(["", "text", "checks", "rows", "guidance", "seed"], rows)


def response(answer: GenerateResponse) -> str:
    """The samples under a headline."""
    head = f"<b>{escape(answer.model)}</b>, {escape(answer.policy.preset)}: {escape(text.totals(answer.samples))}"
    return f"<div>{head}{samples(answer.samples)}</div>"


def trace(run: Trace) -> str:
    """The canvas after each step, coloured as in `Trace.plot`."""
    steps = zip(replay.recorded_steps(run), replay.canvases(run), strict=True)
    rows = [_canvas(step.step, canvas) for step, canvas in steps]
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>'


def _canvas(step: int, canvas: Canvas) -> str:
    cells = [f'<td style="{_CELL};background:none;color:inherit">{step}</td>']
    for position in range(len(canvas)):
        cell = canvas.cells.get(position)
        shown = MASKED if cell is None else escape(cell.piece)
        background = colour(None if cell is None else cell.phase, fresh=position in canvas.fresh)
        cells.append(f'<td style="{_CELL};background:{background}">{shown}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def table(rows: Sequence[Reply]) -> str:
    """Answers of one type, a row each."""
    names = [name for name in type(rows[0]).model_fields if name not in LEFT_OUT] if rows else []
    return _table(names, [[_value(getattr(row, name)) for name in names] for row in rows])


def _value(value: Any) -> str:
    if isinstance(value, Reply):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict | list):
        plain = json.dumps(_ANY.dump_python(value, mode="json"), ensure_ascii=False)
        return f"<code>{escape(plain)}</code>"
    return "" if value is None else escape(str(value))


def result(measured: CommittorResult) -> str:
    """A row a state."""
    rows = [
        [str(point.step), f"{point.fraction:.2f}", *(text.interval(one) for one in (point.q0, point.qg, point.value))]
        for point in measured.points
    ]
    return f"<div>{escape(text.horizon(measured))}{_table(['step', 'fraction', 'q0', 'qg', 'V'], rows)}</div>"


def job(measurement: CommittorJob) -> str:
    """Status, progress bar, result."""
    done = measurement.progress
    head = f"<b>{escape(measurement.id)}</b> {escape(measurement.status)} {escape(measurement.error or '')} "
    bar = f'<progress value="{done.rollouts}" max="{done.rollouts_total}"></progress>'
    return f"<div>{head}{bar}{'' if measurement.result is None else result(measurement.result)}</div>"
