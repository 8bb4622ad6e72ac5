"""What answers look like: in a terminal, in a notebook, as a picture."""

from __future__ import annotations

import io
from typing import get_args

import matplotlib as mpl
import pytest
from matplotlib import pyplot

from astargate_client import CommittorResult, Trace, fraction, handoff, keywords, show_progress, wire
from astargate_client.display import replies
from astargate_client.display.canvas import FRESH, KEPT, MASK

mpl.use("agg")


@pytest.fixture
def answer(client):
    return client.generate(
        constraint=keywords("dog", "ball"), policy=handoff(fraction(0.5), tail_width=4), gen_length=12, seed=5, n=2,
        trace=True,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


def step(number, phase, positions, pieces, masked, **more):
    tokens = [ord(piece[0]) for piece in pieces]
    return {"step": number, "phase": phase, "positions": positions, "tokens": tokens, "pieces": pieces,
            "confidence": [0.5] * len(tokens), "masked": masked, "filled": [], **more}  # fmt: skip


def repaired() -> Trace:
    """Two steps, then a repair round that masks position 0 (token 0 is the mask) and keeps the rest."""
    steps = [
        step(0, "guided", [1], ["<b>"], 3),
        step(1, "base", [0], ["a"], 2, filled=[2]),
        step(0, "guided", [0], ["z"], 1),
    ]
    resumed = [{"index": 2, "canvas": [0, ord("<"), 9], "reopened": [0], "attempt": 0, "round": 1}]
    return Trace(start_step=0, steps=steps, resumed=resumed, tokens=[ord("z"), ord("<"), 9], pieces=["z", "<b>", ""])


def test_a_long_list_is_cut_and_its_schemas_stay_out(client):
    constraints = client.constraints()
    lines = repr(constraints).splitlines()
    assert lines[1].split()[0] == "type"
    assert lines[-1] == f"  ... {len(constraints.data) - 20} more"
    assert "additionalProperties" not in constraints._repr_html_()
    assert repr(constraints.model_copy(update={"data": []})) == "<ConstraintList of 0>"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def job(rollouts, status="running"):
    progress = {"rollouts": rollouts, "rollouts_total": 20, "forward_evaluations": 0}
    fields = {"progress": progress, "id": "job-1", "status": status, "result": None}
    return wire.CommittorJob.model_construct(**{**fields, "progress": wire.Progress.model_construct(**progress)})


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere():
    terminal, log = Terminal(), io.StringIO()
    for out in (terminal, log):
        show = show_progress(out)
        for state in (job(0), job(1), job(10), job(20, "succeeded")):
            show(state)
    assert terminal.getvalue().split("\r")[-1] == f"[{'#' * 24}] succeeded 20 of 20 rollouts\n"
    assert terminal.getvalue().count("\r") == 4
    assert log.getvalue().splitlines() == [
        "running 0 of 20 rollouts",
        "running 10 of 20 rollouts",
        "succeeded 20 of 20 rollouts",
    ]


def test_answers_are_readable(answer):
    shown = str(answer)
    assert shown == repr(answer)
    assert answer.id in shown
    assert all(sample.text[:20] in shown for sample in answer.samples)
    assert "14 of 24 rows, handoff at step 6" in repr(answer.samples[0])
    lines = repr(answer.samples[0].trace).splitlines()
    assert len(lines) == 1 + 6 + 2
    assert lines[1].count("·") == 11
    assert "·" not in lines[-1]


def test_notebooks_get_tables_and_nothing_unescaped(answer, client):
    page = answer._repr_html_()
    assert page.count("<tr>") == 3
    assert "14 of 24" in page
    for listing in (client.models(), client.policies(), client.constraints(), client.gates()):
        assert "<table>" in listing._repr_html_()
        assert repr(listing) == str(listing)
        assert f"<{type(listing).__name__} of {len(listing.data)}>" in repr(listing)
        assert all(len(line) < 250 for line in repr(listing).splitlines())
    hostile = answer.samples[0].model_copy(update={"text": "<script>alert(1)</script>"})
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in repaired()._repr_html_()
    assert "<b>" not in repaired()._repr_html_()


def test_a_trace_of_a_repair_is_replayed():
    shown = [canvas.pieces for canvas in repaired().canvases()]
    assert shown == [[None, "<b>", None], ["a", "<b>", ""], ["z", "<b>", ""]]
    assert repaired().handoff_rows() == [1]
    table = repaired()._repr_html_()
    assert FRESH["guided"] in table
    assert KEPT["filled"] in table
    assert MASK in table


def test_the_picture_shows_every_commit(answer):
    trace = answer.samples[0].trace
    axes = trace.plot()
    axes.figure.canvas.draw()
    assert {text.get_text() for text in axes.texts} >= {piece for piece in trace.pieces if piece.isalpha()}
    assert "handoff before step 6" in {text.get_text() for text in axes.texts}
    image = axes.images[0].get_array()
    assert image.shape[:2] == (8, 12)
    fresh = sum(tuple(pixel) == mpl.colors.to_rgb(FRESH["guided"]) for row in image for pixel in row)
    assert fresh == 6
    mine = pyplot.figure().subplots()
    assert repaired().plot(mine) is mine
    assert "1 reopened, round 1" in {text.get_text() for text in mine.texts}


def test_a_long_trace_stays_small_enough():
    steps = [step(number, "base", [number % 512], ["word"], 1) for number in range(1024)]
    trace = Trace(start_step=0, steps=steps, resumed=[], tokens=[ord("w")] * 512, pieces=["word"] * 512)
    width, height = trace.plot().figure.get_size_inches()
    assert width <= 40
    assert height <= 30


def test_a_switch_curve_is_drawn():
    share = {
        "estimate": 0.5,
        "low": 0.2,
        "high": 0.8,
        "method": "wilson",
        "successes": 2,
        "rollouts": 4,
        "mean_score": 0.6,
    }
    value = {"estimate": 0.0, "low": -0.3, "high": 0.3, "method": "newcombe"}
    point = {"step": 1, "fraction": 0.1, "committed_fraction": 0.1, "masked": 9, "q0": share, "qg": share,
             "value": value, "graded_value": value}  # fmt: skip
    horizon = {"censored": False, "step": 1, "fraction": 0.1, "committed_fraction": 0.1}
    result = CommittorResult(points=[point], horizon=horizon, handoff_fate="preformed", forward_evaluations=80)
    axes = result.plot()
    assert {line.get_label() for line in axes.lines} >= {"a*"}
    assert "0.50 [0.20, 0.80]" in repr(result)
    assert "a* step 1" in result._repr_html_()


def test_what_is_shown_is_read_at_every_depth():
    """An answer inside another one is the class with methods, never the bare generated one."""
    shown = {name: kind for name, kind in vars(replies).items() if isinstance(kind, type) and hasattr(wire, name)}
    assert {"Sample", "Trace", "GenerateResponse", "CommittorJobList", "ModelList"} <= shown.keys()
    bare = {getattr(wire, name) for name in shown}
    for name, kind in shown.items():
        assert issubclass(kind, getattr(wire, name))
        for field in kind.model_fields.values():
            assert not {field.annotation, *get_args(field.annotation)} & bare
