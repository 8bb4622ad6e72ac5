"""What answers look like in a notebook. Everything that comes from a text is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from astargate_client import palette
from astargate_client.display import text
from astargate_client.display.canvas import MASKED, Canvas
from astargate_client.transport.reply import Reply

if TYPE_CHECKING:
    from astargate_client.wire import CommittorJob, CommittorResult, GenerateResponse, Sample, Trace

_ANY: Final = TypeAdapter[Any](Any)
_LEFT: Final = "text-align:left;vertical-align:top"
_CELL: Final = f"padding:1px 4px;border:1px solid #fff;color:{palette.INK};font:12px monospace;white-space:nowrap"


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f'<{tag} style="{_LEFT}">{cell}</{tag}>' for cell in cells) + "</tr>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"<table>{_row(map(escape, head), 'th')}{''.join(map(_row, rows))}</table>"


def samples(found: Sequence[Sample]) -> str:
    """A row a sample: text, checks, rows, gate."""
    rows = []
    for one in found:
        checks = "<br>".join(
            f'<span title="{escape(check.detail)}">{text.verdict(check.satisfied)}{escape(check.name)}</span>'
            for check in one.checks
        )
        spent = one.forward_evaluations
        gate = escape(text.decision(one.gate))
        if one.gate.fallback_reason:
            gate += f"<br><small>{escape(one.gate.fallback_reason)}</small>"
        rows.append(
            [
                str(one.index),
                f"{text.verdict(one.satisfied)}{escape(one.text)}",
                checks,
                f"{spent.total} of {spent.full_cfg_equivalent}",
                gate,
                str(one.seed),
            ]
        )
    return _table(["", "text", "checks", "rows", "guidance", "seed"], rows)


def response(answer: GenerateResponse) -> str:
    """The samples under a headline."""
    head = f"<b>{escape(answer.model)}</b>, {escape(answer.policy.preset)}: {escape(text.totals(answer.samples))}"
    return f"<div>{head}{samples(answer.samples)}</div>"


def trace(found: Trace) -> str:
    """The canvas after each step, coloured as in `Trace.plot`."""
    rows = [_canvas(step.step, canvas) for step, canvas in zip(found.recorded_steps(), found.canvases(), strict=True)]
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>'


def _canvas(step: int, canvas: Canvas) -> str:
    cells = [f'<td style="{_CELL};background:none;color:inherit">{step}</td>']
    for position in range(len(canvas)):
        cell = canvas.cells.get(position)
        shown = MASKED if cell is None else escape(cell.piece)
        colour = palette.colour(None if cell is None else cell.phase, fresh=position in canvas.fresh)
        cells.append(f'<td style="{_CELL};background:{colour}">{shown}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def table(rows: Sequence[Reply]) -> str:
    """Answers of one type, a row each."""
    names = list(type(rows[0]).model_fields) if rows else []
    return _table(names, [[_value(getattr(row, name)) for name in names] for row in rows])


def _value(value: Any) -> str:
    if isinstance(value, Reply):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict | list):
        plain = json.dumps(_ANY.dump_python(value, mode="json"), ensure_ascii=False)
        return f"<code>{escape(plain)}</code>"
    return "" if value is None else escape(str(value))


def result(found: CommittorResult) -> str:
    """A row a state."""
    rows = [
        [str(point.step), f"{point.fraction:.2f}", *(text.interval(one) for one in (point.q0, point.qg, point.value))]
        for point in found.points
    ]
    return f"<div>{escape(text.horizon(found))}{_table(['step', 'fraction', 'q0', 'qg', 'V'], rows)}</div>"


def job(found: CommittorJob) -> str:
    """Status, progress bar, result."""
    done = found.progress
    head = f"<b>{escape(found.id)}</b> {escape(found.status)} {escape(found.error or '')} "
    bar = f'<progress value="{done.rollouts}" max="{done.rollouts_total}"></progress>'
    return f"<div>{head}{bar}{'' if found.result is None else result(found.result)}</div>"
