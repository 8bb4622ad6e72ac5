"""The law of a mended text: the real engine against the exact toy, over every finished canvas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import ToyTables, random_tables
from tests.toy.decoder.decoder_runs import decode, p_value, steady_tables
from tests.toy.decoder.test_outcomes import LEVEL, one_a

RUNS = 500
DECIDED = random_tables(5, length=4, spread=1.6)
"""Sure of itself, and of other things as its canvas fills."""
ENDING = random_tables(11, spread=1.6, end_is_token=True)
STEADY = steady_tables(1)

CASES: dict[str, tuple[ToyTables, Rules, int]] = {
    "base": (DECIDED, Rules(4, tail_width=4, mend=2), 0),
    "handoff 1": (DECIDED, Rules(4, tail_width=3, mend=2), 1),
    "one at a time": (DECIDED, Rules(4, tail_width=3, mend=4), 1),
    "temperature 0.5, top_p 0.8": (DECIDED, Rules(4, tail_width=2, mend=2, temperature=0.5, top_p=0.8), 1),
    "temperature 0": (DECIDED, Rules(4, tail_width=4, mend=2, temperature=0.0), 0),
    "end of text": (ENDING, Rules(3, tail_width=3, mend=2), 0),
    "no end of text": (ENDING, Rules(3, tail_width=3, mend=2, suppress_end=True), 0),
    "spaced": (DECIDED, Rules(4, tail_width=4, mend=2, tail_rule="spaced"), 0),
    "best_of_run": (DECIDED, Rules(4, tail_width=4, mend=3, tail_rule="best_of_run"), 0),
    "entropy_bound": (DECIDED, Rules(4, tail_width=4, mend=2, tail_rule="entropy_bound"), 0),
    "factor": (DECIDED, Rules(4, tail_width=4, mend=2, tail_rule="factor"), 0),
    "stable": (STEADY, Rules(5, tail_width=3, mend=2, tail_rule="stable"), 0),
    "growing": (DECIDED, Rules(4, tail_width=2, mend=2, growing=True), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_mended_texts_follow_the_exact_law(case: str) -> None:
    tables, rules, handoff = CASES[case]
    counts = Counter((tables.canvas.number(o.tokens),) for o in decode(tables, rules, handoff, RUNS))
    law = ExactToy(tables, rules, one_a).texts(handoff)
    assert sum(law.values()) == pytest.approx(1.0)
    assert p_value(counts, {(state,): mass for state, mass in law.items()}) > LEVEL


@pytest.mark.parametrize("wrong", [{"mend": None}, {"mend": 3}, {"mend": 4}], ids=str)
def test_the_counts_tell_other_mending_apart(wrong: dict[str, int | None]) -> None:
    tables, rules, handoff = CASES["base"]
    counts = Counter((tables.canvas.number(o.tokens),) for o in decode(tables, rules, handoff, 4 * RUNS))
    law = ExactToy(tables, replace(rules, **wrong), one_a).texts(handoff)  # type: ignore[arg-type]
    assert p_value(counts, {(state,): mass for state, mass in law.items()}) < 1e-6
