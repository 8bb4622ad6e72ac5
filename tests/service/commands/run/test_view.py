"""The canvas of `astargate run` in a terminal, event by event."""

from __future__ import annotations

import io

from rich.console import Console

from service.commands.run.events import Committed, Reopened
from service.commands.run.view import MASKED, STYLES, Canvas, Screen, coloured

GUIDED = Committed(0, "guided", (0, 3), ("a", "##ll"))
BASE = Committed(0, "base", (2,), ("ba",), filled=(4,))


def styles(canvas: Canvas) -> list[str]:
    shown = canvas.shown(finished=True)
    return [str(span.style) for span in shown.spans if shown.plain[span.start : span.end].strip()]


def filled(*events: Committed | Reopened) -> Canvas:
    canvas = Canvas()
    for event in events:
        canvas.take(event)
    return canvas


def test_a_guided_step_costs_two_rows_and_a_plain_one_one() -> None:
    assert [filled(GUIDED).rows, filled(GUIDED, BASE).rows] == [2, 3]


def test_pieces_stand_at_their_places_and_word_parts_join() -> None:
    assert filled(GUIDED).shown().plain.split() == ["a", MASKED, f"{MASKED}ll"]
    assert filled(GUIDED, BASE).shown().plain.split() == ["a", MASKED, "ball"]


def test_each_phase_has_its_colour() -> None:
    assert styles(filled(GUIDED, BASE)) == [STYLES["guided"], "dim", STYLES["base"], STYLES["guided"]]


def test_what_repair_opens_again_is_marked_until_it_is_written() -> None:
    canvas = filled(GUIDED, BASE, Reopened(0, ("a", None, None, "##ll", "")))
    assert canvas.reopened == {2}
    assert STYLES["reopened"] in styles(canvas)
    canvas.take(Committed(0, "guided", (2,), ("be",)))
    assert canvas.reopened == set()
    assert STYLES["reopened"] not in styles(canvas)


def test_a_piece_that_repair_brings_back_is_neither_guided_nor_base() -> None:
    canvas = filled(GUIDED, Reopened(0, ("the", None, None, "##ll")))
    assert styles(canvas)[0] == STYLES["kept"]
    assert canvas.cells[3] == ("##ll", "guided")


def test_the_end_shows_text_verdict_and_rows_beside_full_guidance() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=200, force_terminal=True, color_system=None)
    pauses: list[float] = []
    with Screen(console, 1, pauses.append) as watch:
        watch(GUIDED)
        watch(BASE)
    sample = {
        "text": "a ball",
        "satisfied": False,
        "seed": 7,
        "forward_evaluations": {"total": 3, "full_cfg_equivalent": 4},
        "gate": {"source": "never", "decision": "base", "handoff_step": None, "evidence": "none",
                 "measured_loss": None, "fallback_reason": None},
    }  # fmt: skip
    console.print(coloured({"samples": [sample]}, watch.canvases))
    shown = screen.getvalue()
    assert "3 of 4 rows (75% of full guidance)" in shown
    assert "not satisfied" in shown
    assert len(pauses) == 2
