"""The deployment view: best-of-n read off one run, policies at the same rows, tables, picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate_models.offline.deployment import report
from gate_models.offline.deployment.results import (
    BestOfCurve,
    BestOfN,
    PolicyRow,
    _between,
    best_of_curve,
    beyond,
    merged,
    plain,
    pooled,
    rows_of,
    truncated,
)
from gate_models.offline.deployment.verdicts import ALL, against_best_of, against_full, best_beside, winners
from gate_models.offline.scorers.fluency import load_judge
from gate_models.statistics.intervals import Estimate


def sample(prompt: str, satisfied: bool, rows: int, *history: tuple[int, bool]) -> dict[str, Any]:
    return {
        "prompt_id": prompt,
        "satisfied": satisfied,
        "rows": rows,
        "history": [(*end, "a dog runs") for end in history],
        "text": "a dog runs",
    }


CELLS = {
    "full_cfg": [sample("a", True, 32), sample("b", False, 32)],
    "cheap": [sample("a", True, 20), sample("b", True, 28)],
    "base:best3": [
        sample("a", True, 16, (16, True)),
        sample("b", True, 48, (16, False), (32, False), (48, True)),
    ],
}


def result(**tasks: Any) -> dict[str, Any]:
    return {"seed": 3, "model": "tiny", "model_hash": "h", "tasks": {name: {"samples": c} for name, c in tasks.items()}}


def named(cells: dict[str, Any]) -> dict[str, Any]:
    return {{"cheap": "handoff:0.3:repair3x4"}.get(name, name): cell for name, cell in cells.items()}


def test_best_of_n_is_read_off_one_run() -> None:
    curve = best_of_curve("base:best3", CELLS["base:best3"])
    rows, success = curve.points()
    assert rows.tolist() == [16.0, 24.0, 32.0]
    assert success.tolist() == [0.5, 0.5, 1.0]
    assert curve.at(28.0) == pytest.approx(0.75)
    assert curve.at(15.0) is curve.bounds(15.0) is None
    assert curve.at(33.0) == 1.0, "all prompts are solved: more rows are not used"


def test_beyond_the_tries_that_were_run_best_of_n_has_bounds() -> None:
    failing = [sample("a", True, 16, (16, True)), sample("b", False, 32, (16, False), (32, False))]
    curve = best_of_curve("base:best2", failing)
    assert curve.bounds(24.0) == (0.5, 0.5)
    assert curve.at(28.0) is None
    assert curve.bounds(28.0) == (0.5, 0.75), "4 rows a prompt are a quarter of a text for each"
    assert curve.bounds(99.0) == (0.5, 1.0)
    assert beyond([sample("a", True, 28), sample("b", True, 28)], curve) is None


def test_a_policy_is_compared_at_its_own_rows() -> None:
    prompts = tuple(f"p{index:02}" for index in range(40))
    half = np.array([[index % 2 == 0, True] for index in range(40)], dtype=np.float64)
    rows = np.array([[10.0, 10.0 if index % 2 == 0 else 20.0] for index in range(40)])
    curve = BestOfCurve("base:best2", prompts, rows, half)
    own = [sample(prompt, True, 12) for prompt in prompts]
    comparison = beyond(own, curve)
    assert comparison is not None
    assert comparison.value == pytest.approx(1.0 - 0.7)
    assert 0.1 < comparison.low < comparison.value < comparison.high < 0.5
    solved = beyond([sample(prompt, False, 40) for prompt in prompts], curve)
    assert solved is not None
    assert [solved.value, solved.low, solved.high] == pytest.approx([-1.0] * 3)
    one = curve.rows.mean(0)[1]
    same = [sample(prompt, bool(half[index, 1]), int(rows[index, 1])) for index, prompt in enumerate(prompts)]
    against_itself = beyond(same, curve)
    assert one == 15.0
    assert against_itself is not None
    assert [against_itself.value, against_itself.low, against_itself.high] == pytest.approx([0.0] * 3, abs=1e-12)


def test_rows_hold_what_the_tables_say() -> None:
    rows = {row.policy: row for row in rows_of(named(CELLS), load_judge())}
    own = rows["handoff:0.3:repair3x4"]
    assert (own.prompts, own.rows, own.success.value) == (2, 24.0, 1.0)
    assert own.success.low < 1.0
    assert own.gain is not None
    assert own.gain.value == 0.5
    assert own.of_full == 24 / 32
    assert own.more_rows is not None
    assert (own.more_rows.value, own.more_rows.low, own.more_rows.high) == (-8.0, -12.0, -4.0)
    assert own.best_of["base:best3"].bounds == (0.5, 0.5)
    assert rows["full_cfg"].gain is rows["full_cfg"].more_rows is None
    assert rows["base:best3"].best_of["base:best3"].difference is None
    first = {row.policy: row for row in rows_of(plain(named(CELLS)), load_judge())}["base"]
    assert first.best_of["base:best3"].difference is None, "its own first pass"


def test_results_are_merged_and_pooled() -> None:
    one, two = named(CELLS), {"full_cfg": CELLS["full_cfg"]}
    tasks = merged([result(**{"ccg-length": one}), result(**{"collie-c07": two})])
    assert set(pooled(tasks)) == {"full_cfg"}
    assert {sample["prompt_id"] for sample in pooled(tasks)["full_cfg"]} == {
        "ccg-length/a", "ccg-length/b", "collie-c07/a", "collie-c07/b",
    }  # fmt: skip
    again = merged([result(**{"ccg-length": two}), result(**{"ccg-length": one})])
    assert set(again["ccg-length"]) == {*one, "base"}
    with pytest.raises(ValueError, match="different models or seeds"):
        merged([result(), result() | {"seed": 4}])


def test_the_report_counts_where_a_policy_is_ahead(tmp_path: Path) -> None:
    worse = named({**CELLS, "cheap": [sample("a", True, 31), sample("b", False, 31)]})
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result(**{"ccg-length": named(CELLS), "collie-c07": worse})))
    report.write([path], tmp_path / "out", ["handoff:0.3:repair3x4", "auto"])
    text = (tmp_path / "out" / "deployment.md").read_text()
    assert "| ccg-length (2) | 0.500 at 32.0 | 1.000 at 24.0 | +0.500 [" in text
    assert "| yes | 0.500 (base:best3) | yes |" in text
    assert "| collie-c07 (2) | 0.500 at 32.0 | 0.500 at 31.0 | +0.000 [" in text
    assert "| equal | 0.938 (base:best3) | no |" in text
    assert "auto" not in text, "it was not run"
    assert "fewer rows on 1 of 2 families (with an interval above 0 on 0), equal on 1 more" in text
    assert "same rows on 1, level on 0, behind on 1; cheaper than any one text on 0" in text
    assert "| ccg-length | handoff:0.3:repair3x4: 1.000 at 24.0 | +0.000 [+0.000, +0.000] (base:best3) |" in text
    content = json.loads((tmp_path / "out" / "deployment.json").read_text())
    assert set(content["tasks"]) == {"ccg-length", "collie-c07", "all prompts"}
    assert content["made_from"][0]["model_hash"] == "h"
    assert (tmp_path / "out" / "frontier.png").read_bytes()[:4] == b"\x89PNG"


def test_lines_are_interpolated_as_numpy_does() -> None:
    rng = np.random.default_rng(0)
    points, values = np.sort(rng.random((50, 4)), axis=1), rng.random((50, 4))
    at = rng.random(50) * 1.4 - 0.2
    expected = [np.interp(*three) for three in zip(at, points, values, strict=True)]
    np.testing.assert_allclose(_between(at, points, values), expected, atol=1e-12)
    assert _between(at, points[:, :1], values[:, :1]).tolist() == values[:, 0].tolist()


def test_first_passes_are_policies_of_their_own() -> None:
    repaired = [sample("a", True, 26, (20, False), (26, True)), sample("b", True, 20, (20, True))]
    for row, text in zip(repaired, ("first", "only"), strict=True):
        row["history"] = [(*end[:2], text) for end in row["history"]]
    cells = plain({"handoff:0.3:repair3x2": repaired, "full_cfg": CELLS["full_cfg"]})
    assert set(cells) == {"handoff:0.3", "handoff:0.3:repair3x2", "full_cfg"}
    assert [(row["rows"], row["satisfied"], row["text"]) for row in cells["handoff:0.3"]] == [
        (20, False, "first"), (20, True, "only"),
    ]  # fmt: skip
    assert [row["rows"] for row in truncated(repaired, 2)] == [26, 20]


def row(policy: str, success: float, rows: float, **best_of: tuple[float, float] | None) -> PolicyRow:
    around = Estimate(success, success, success, "wilson")
    beside = {name: BestOfN(bounds, None) for name, bounds in best_of.items()}
    return PolicyRow(policy, 9, around, rows, None, None, None, None, 0.0, beside)


@pytest.mark.parametrize(
    ("best_of", "verdict", "shown"),
    [
        ({"one": (0.5, 0.5), "two": (0.7, 0.7)}, "yes", "0.700 (two)"),
        ({"one": (0.8, 0.8), "two": None}, "tie", "0.800 (one)"),
        ({"one": (0.5, 0.5), "two": (0.9, 0.9)}, "no", "0.900 (two)"),
        ({"one": (0.7, 0.85)}, "open", "0.700 to 0.850 (one)"),
        ({"one": (0.6, 0.75)}, "yes", "0.600 to 0.750 (one)"),
        ({"one": None}, "-", ""),
    ],
)
def test_a_verdict_is_given_only_where_best_of_n_is_known(best_of: Any, verdict: str, shown: str) -> None:
    own = row("own", 0.8, 30.0, **best_of)
    assert (against_best_of(own), best_beside(own)) == (verdict, shown)


def test_more_success_counts_only_at_fewer_rows() -> None:
    full = row("full_cfg", 0.8, 32.0)
    verdicts = [against_full(row("own", *at), full) for at in ((0.9, 31.0), (0.8, 31.0), (0.7, 1.0), (0.9, 32.0))]
    assert verdicts == ["yes", "tie", "no", "no"]


def test_the_winner_costs_no_more_than_full_cfg() -> None:
    rows = {
        "ccg-length": [row("full_cfg", 0.8, 32.0), row("cheap", 0.8, 20.0), row("dear", 0.9, 40.0)],
        ALL: [row("full_cfg", 0.8, 32.0), row("cheap", 0.9, 20.0)],
    }
    cells = {name: [sample("a", True, 20)] for name in ("full_cfg", "cheap", "dear")}
    text = winners(rows, {"ccg-length": cells, ALL: cells})
    assert "| ccg-length | cheap: 0.800 at 20.0 | +0.000 [+0.000, +0.000] (full_cfg) | dear: 0.900 at 40.0 |" in text
    assert "| all prompts | cheap: 0.900 at 20.0 |" in text
    assert text.rstrip().endswith("has `cheap` on 1 families.")
