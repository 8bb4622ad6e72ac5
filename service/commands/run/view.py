"""The canvas of `astargate run` in a terminal: how it fills, what it has cost, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from service.commands.run.events import Committed, Reopened

MASKED: Final = "\u00b7"
STYLES: Final = {"guided": "orange3", "base": "steel_blue1", "reopened": "bold red", "kept": "green"}
"""Colours as in the playground: what guidance wrote is orange, what plain steps wrote is blue."""
FRESH: Final = "bold underline"
ROWS: Final = {"guided": 2, "base": 1}
FRAME_SECONDS: Final = 0.04
"""A small model is done before one could see it: so long each step stays, at least."""
BAR: Final = 40


class Canvas:
    """One text while it grows: a piece and a style for each position, None where it is masked."""

    def __init__(self) -> None:
        self.cells: dict[int, tuple[str, str]] = {}
        self.reopened: frozenset[int] = frozenset()
        self.fresh: frozenset[int] = frozenset()
        self.rows = 0
        self.length = 0

    def take(self, event: Committed | Reopened) -> None:
        """Go on by one event."""
        if isinstance(event, Reopened):
            self._reopen(event)
            return
        self.rows += ROWS.get(event.phase, 1)
        for position, piece in zip(event.positions, event.pieces, strict=True):
            self.cells[position] = (piece, event.phase)
        for position in event.filled:
            self.cells[position] = ("", "kept")
        self.fresh = frozenset(event.positions)
        self.reopened -= self.fresh
        self.length = max([self.length, *(position + 1 for position in (*event.positions, *event.filled))])

    def _reopen(self, event: Reopened) -> None:
        before = self.cells
        self.cells = {
            position: before[position] if before.get(position, ("", ""))[0] == piece else (piece, "kept")
            for position, piece in enumerate(event.canvas)
            if piece is not None
        }
        self.reopened = frozenset(before.keys() - self.cells.keys())
        self.fresh = frozenset()
        self.length = max(self.length, len(event.canvas))

    def shown(self, *, finished: bool = False) -> Text:
        """The pieces in their colours; a place that repair opened again, and what the last step wrote, are marked."""
        line = Text()
        for position in range(self.length):
            piece, phase = self.cells.get(position, (MASKED, ""))
            style = "dim" if _is_end(piece) else STYLES.get(phase, "dim")
            if position in self.reopened:
                style = STYLES["reopened"]
            elif position in self.fresh and not finished:
                style = f"{style} {FRESH}"
            if line and not piece.startswith("##"):
                line.append(" ")
            line.append(piece.removeprefix("##").strip() or " ", style)
        return line


def _is_end(piece: str) -> bool:
    """Whether a piece is an end of text, or another token that writes nothing."""
    return piece[:1] + piece[-1:] in {"[]", "<>"} and len(piece) > 2


class Screen:
    """The canvases of all samples, drawn anew at every event. A context manager; `Watch` is its `__call__`."""

    def __init__(self, console: Console, samples: int, pause: Callable[[float], None] = time.sleep) -> None:
        self.canvases = [Canvas() for _ in range(samples)]
        self._pause = pause
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __call__(self, event: Committed | Reopened) -> None:
        self.canvases[event.sample].take(event)
        self._live.update(Group(*(part for canvas in self.canvases for part in _parts(canvas))), refresh=True)
        self._pause(FRAME_SECONDS)

    def __enter__(self) -> Self:
        self._live.start()
        self._live.update(Text("loading the model ...", "dim"), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def _parts(canvas: Canvas) -> list[Text]:
    return [canvas.shown(), Text(f"{canvas.rows} rows", "dim")]


def coloured(answer: dict[str, Any], canvases: list[Canvas]) -> Group:
    """Each text with its verdict, its rows beside those of full guidance, and what ended guidance."""
    parts: list[Text] = []
    for sample, canvas in zip(answer["samples"], canvases, strict=True):
        parts += [canvas.shown(finished=True), Text(sample["text"], "bold"), _verdict(sample), _bar(sample)]
        parts += [Text(f"  {decided(sample['gate'])}", "dim"), Text("")]
    legend = Text("guided", STYLES["guided"])
    legend.append(", ", "dim").append("without guidance", STYLES["base"])
    if any(sample.get("repair") for sample in answer["samples"]):
        legend.append(", ", "dim").append("kept from an earlier text", STYLES["kept"])
    return Group(*parts, legend)


def _verdict(sample: dict[str, Any]) -> Text:
    met = sample["satisfied"]
    style = {True: "green", False: "red", None: "dim"}[met]
    return Text(f"  {verdict(met)}", style).append(f"; seed {sample['seed']}", "dim")


def _bar(sample: dict[str, Any]) -> Text:
    """Rows that were run as a part of full guidance's."""
    spent = sample["forward_evaluations"]
    total, full = spent["total"], spent["full_cfg_equivalent"]
    filled = min(BAR, round(BAR * total / full))
    bar = Text("  " + "\u2588" * filled, STYLES["guided"]).append("\u2591" * (BAR - filled), "dim")
    return bar.append(f" {total} of {full} rows ({total / full:.0%} of full guidance)")


def plain(answer: dict[str, Any]) -> str:
    """The same without colours, for a file or another program."""
    lines = []
    for sample in answer["samples"]:
        spent = sample["forward_evaluations"]
        ledger = (
            f"{spent['total']} forward evaluations ({spent['conditional']} conditional, "
            f"{spent['unconditional']} unconditional); full CFG {spent['full_cfg_equivalent']}, saved {spent['saved']}"
        )
        lines += [sample["text"], f"  [{verdict(sample['satisfied'])}; seed {sample['seed']}; {ledger}]"]
        lines.append(f"  [{decided(sample['gate'])}]")
    return "\n".join(lines)


def verdict(satisfied: bool | None) -> str:
    """What the constraint says."""
    return {True: "satisfied", False: "not satisfied", None: "no constraint"}[satisfied]


def decided(gate: dict[str, Any]) -> str:
    """What became of guidance, and on what evidence."""
    step = "" if gate["handoff_step"] is None else f" before step {gate['handoff_step']}"
    parts = [f"gate {gate['source']}: {gate['decision']}{step}; evidence: {gate['evidence']}"]
    if lost := gate["measured_loss"]:
        interval = f"[{lost['low']:+.2f}, {lost['high']:+.2f}]"
        parts.append(f"loss of success {lost['loss']:+.2f} {interval} on {lost['pairs']} pairs")
    if gate["fallback_reason"]:
        parts.append(f"fallback: {gate['fallback_reason']}")
    return "; ".join(parts)
