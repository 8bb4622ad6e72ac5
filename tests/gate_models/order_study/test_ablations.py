"""Guidance first with a part of its order and without it."""

from __future__ import annotations

import pytest

from gate_models.offline.order_study.ablations import ablation_table, ablations
from gate_models.offline.order_study.points import Point, StudySetting, points
from gate_models.offline.order_study.report import OrderStudy
from gate_models.offline.scorers.fluency import Fluency, load_judge
from tests.gate_models.order_study.samples import samples

FIRST = "drained:0.5:guidance_boost:b0.8"
COMMON = {"model": "tiny", "model_hash": "hash", "precision": "float32", "seeds": [0], "judge": "n-gram"}
OWN16 = StudySetting((16,))


def measured(**success: float) -> list[Point]:
    """20 prompts: base decoding at 16 rows and guidance first at 18."""
    names = {"first": (FIRST, 18), "base": ("base", 16)}
    texts = {names[key][0]: samples([value] * 20, names[key][1]) for key, value in success.items()}
    return points(texts, Fluency(load_judge()))


def test_an_order_stands_beside_itself_without_a_part() -> None:
    """Two families alone and together; a setting or a policy that has no counterpart says nothing."""
    free, both = (StudySetting((16,), without=names) for names in (("text_margins",), ("text_margins", "whole_words")))

    groups = {
        ("a", OWN16): measured(first=0.8, base=0.8),
        ("a", free): measured(first=0.6),
        ("a", both): measured(first=0.1),
        ("a", StudySetting((24,), without=("text_margins",))): measured(first=0.1),
        ("b", OWN16): measured(first=0.8),
        ("b", free): measured(first=0.4),
    }
    own = ablations(groups)
    assert [(one.task, one.left_out, one.whole.policy, one.difference.value) for one in own] == [
        ("a", "text_margins", FIRST, pytest.approx(0.2)),
        ("b", "text_margins", FIRST, pytest.approx(0.4)),
    ]
    table = ablation_table(own)
    assert f"| text_margins | {FIRST} | a | 18.0 | 0.80 |" in table
    assert "| 18.0 | 0.60 |" in table
    assert f"| text_margins | {FIRST} | 2 families | - | 0.800 |" in table
    assert "| +0.300 [+0.300, +0.300] |" in table
    assert "families" not in ablation_table(own[:1])
    shown = OrderStudy(groups, COMMON, (), ("base", FIRST), ablations=own)
    assert table in shown.markdown()
    assert shown.to_json()["ablations"][1]["difference"] == [0.4, 0.4, 0.4]
