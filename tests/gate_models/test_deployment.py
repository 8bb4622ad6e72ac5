"""The deployment view: best-of-n read off one run, policies at the same rows, tables, picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate_models.offline import deployment_report
from gate_models.offline.deployment import (
    Curve,
    _between,
    best_of_curve,
    beyond,
    merged,
    plain,
    pooled,
    rows_of,
    truncated,
)
from gate_models.offline.fluency import load_judge


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
    return {{"cheap": "handoff:0.3:repair3x4"}.get(name, name): found for name, found in cells.items()}


def test_best_of_n_is_read_off_one_run() -> None:
    curve = best_of_curve("base:best3", CELLS["base:best3"])
    rows, success = curve.points()
    assert rows.tolist() == [16.0, 24.0, 32.0]
    assert success.tolist() == [0.5, 0.5, 1.0]
    assert curve.at(28.0) == pytest.approx(0.75)
    assert curve.at(15.0) is None
    assert curve.at(33.0) is None


def test_a_policy_is_compared_at_its_own_rows() -> None:
    prompts = tuple(f"p{index:02}" for index in range(40))
    half = np.array([[index % 2 == 0, True] for index in range(40)], dtype=np.float64)
    rows = np.array([[10.0, 10.0 if index % 2 == 0 else 20.0] for index in range(40)])
    curve = Curve("base:best2", prompts, rows, half)
    own = [sample(prompt, True, 12) for prompt in prompts]
    found = beyond(own, curve)
    assert found is not None
    assert found.value == pytest.approx(1.0 - 0.7)
    assert 0.1 < found.low < found.value < found.high < 0.5
    assert beyond([sample(prompt, True, 40) for prompt in prompts], curve) is None
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
    assert own.best_of["base:best3"][0] == 0.5
    assert rows["full_cfg"].gain is None
    assert rows["base:best3"].best_of["base:best3"][1] is None


def test_results_are_merged_and_pooled() -> None:
    one, two = named(CELLS), {"full_cfg": CELLS["full_cfg"]}
    tasks = merged([result(**{"ccg-length": one}), result(**{"collie-c07": two})])
    assert set(pooled(tasks)) == {"full_cfg"}
    assert {found["prompt_id"] for found in pooled(tasks)["full_cfg"]} == {
        "ccg-length/a", "ccg-length/b", "collie-c07/a", "collie-c07/b",
    }  # fmt: skip
    again = merged([result(**{"ccg-length": two}), result(**{"ccg-length": one})])
    assert set(again["ccg-length"]) == {*one, "base"}
    with pytest.raises(ValueError, match="different models or seeds"):
        merged([result(), result() | {"seed": 4}])


def test_the_report_counts_where_the_aim_is_met(tmp_path: Path) -> None:
    worse = named({**CELLS, "cheap": [sample("a", True, 31), sample("b", False, 31)]})
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result(**{"ccg-length": named(CELLS), "collie-c07": worse})))
    deployment_report.main([str(path), "--out", str(tmp_path / "out"), "--aim", "handoff:0.3:repair3x4"])
    text = (tmp_path / "out" / "deployment.md").read_text()
    assert "| ccg-length | 0.500 at 32.0 | 1.000 at 24.0 | yes | 0.500 (base:best3) | yes |" in text
    assert "| collie-c07 | 0.500 at 32.0 | 0.500 at 31.0 | equal | 0.938 (base:best3) | no |" in text
    assert "on 1 of 2 families, equal on 1 more; ahead of every best-of-n at the same rows on 1, level on 0" in text
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
    for found, text in zip(repaired, ("first", "only"), strict=True):
        found["history"] = [(*end[:2], text) for end in found["history"]]
    cells = plain({"handoff:0.3:repair3x2": repaired, "full_cfg": CELLS["full_cfg"]})
    assert set(cells) == {"handoff:0.3", "handoff:0.3:repair3x2", "full_cfg"}
    assert [(found["rows"], found["satisfied"], found["text"]) for found in cells["handoff:0.3"]] == [
        (20, False, "first"), (20, True, "only"),
    ]  # fmt: skip
    assert [found["rows"] for found in truncated(repaired, 2)] == [26, 20]
