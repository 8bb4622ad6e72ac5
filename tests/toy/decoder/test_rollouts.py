"""`decoding.engine.rollouts` estimates the exact committors (Section 3.2) and nothing else.

Success frequencies are compared at confidence 99.99 % (Wilson); the recovery identity (Appendix A.1) is the same
statement at states that the run would never reach.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoding.engine.rollouts import continuations, run_all
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.request.job import Anchor
from decoding.sampling import commit_order
from decoding.sampling.block_schedule import BlockSchedule
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import ToyTables, random_tables
from tests.toy.decoder.decoder_runs import POSITION, engine_of, finish, job_of, wilson

TABLES = random_tables(3, length=4, spread=0.6)
COUNT = 500
CONFIDENCE = 0.9999
Canvas = tuple[int | None, ...]


@pytest.fixture(autouse=True)
def _theory_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commit_order.CONFIDENCE_KINDS, "position", POSITION)


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def estimate(
    tables: ToyTables, rules: Rules, canvas: Canvas, step: int, *, guided: bool, width: int | None = None
) -> tuple[float, float]:
    """Wilson interval of success over continuations of a state by the real decoder."""
    engine = engine_of(tables)
    start = [tables.mask_id if token is None else token for token in canvas]
    job = job_of(tables, rules, None)
    jobs = continuations(job, Anchor(tuple(start), step), guided=guided, count=COUNT, arm=f"{guided}", tail_width=width)
    outcomes = finish(engine, engine.submit_all(jobs))
    return wilson(sum(one_a(outcome.tokens) for outcome in outcomes), COUNT, CONFIDENCE)


STATES: dict[str, tuple[Rules, Canvas, int]] = {
    "on its way": (Rules(4), (None, 1, 0, None), 2),
    "boost order": (Rules(4, order="guidance_boost"), (None, None, 1, None), 1),
    "random order": (Rules(4, order="random"), (None, 2, None, None), 1),
    "do(): out of order": (Rules(4, confidence="position"), (None, None, 2, None), 1),
    "do(): a reopened canvas": (Rules(4), (None, None, None, 1), 2),
    "do(): ahead of schedule": (Rules(6), (2, None, 0, 1), 1),
}


@pytest.mark.parametrize("guided", [False, True], ids=["q0", "qg"])
@pytest.mark.parametrize("name", STATES)
def test_continuations_estimate_the_committor(name: str, guided: bool) -> None:
    """Both committors of Section 3.2; at do() states the recovery identity: an intervention succeeds with q_t(x')."""
    rules, canvas, step = STATES[name]
    exact = ExactToy(TABLES, rules, one_a)
    number = exact.canvas.number(canvas)
    expected = exact.committors("guided" if guided else "base")[step][number]
    low, high = estimate(TABLES, rules, canvas, step, guided=guided)
    assert low <= expected <= high
    if name.startswith("do()"):
        assert exact.occupation("guided" if guided else "base")[step][number] == 0


@pytest.mark.parametrize("width", [2, 3])
def test_base_continuations_take_a_tail_width(width: int) -> None:
    """q0 of a K-wide tail, the continuation that a handoff with `tail_width` K is followed by."""
    canvas = (None, None, None, None)
    expected = ExactToy(TABLES, Rules(4), one_a).committors("base", width)[0][-1]
    low, high = estimate(TABLES, Rules(4), canvas, 0, guided=False, width=width)
    assert low <= expected <= high


def test_the_estimate_tells_q0_from_qg() -> None:
    """The interval above is narrow enough to reject the other committor."""
    canvas = (None, None, None, None)
    exact = ExactToy(TABLES, Rules(4, order="guidance_boost"), one_a)
    base, guided = (exact.committors(phase)[0][-1] for phase in ("base", "guided"))
    low, high = estimate(TABLES, Rules(4, order="guidance_boost"), canvas, 0, guided=True)
    assert low <= guided <= high
    assert not low <= base <= high


def test_a_wide_continuation_keeps_the_steps_that_are_left() -> None:
    """From step t a wide tail has T - t steps, as after a handoff at t: with T = 2, four masks at step 1 take one."""
    masked = np.ones(4, dtype=bool)
    assert BlockSchedule.starting_at(1, masked, 2, None, wide=True).quota(4) == 4
    engine = engine_of(TABLES)
    jobs = continuations(
        job_of(TABLES, Rules(2), None),
        Anchor((TABLES.mask_id,) * 4, 1),
        guided=False,
        count=3,
        arm="wide",
        tail_width=2,
    )
    handles = engine.submit_all(jobs)
    assert [outcome.ledger.total for outcome in finish(engine, handles)] == [1, 1, 1]


def test_tail_width_overrides_base_and_adaptive_policies() -> None:
    """The override also holds for a base policy, and a width of 1 drops an adaptive threshold."""
    base = job_of(TABLES, Rules(4), 0)
    assert (
        continuations(base, Anchor((3,) * 4, 0), guided=False, count=1, arm="", tail_width=3)[0].policy.tail_width == 3
    )
    adaptive = DecodingPolicy("handoff", gate=GateSettings("fraction", fraction=0.5), tail_width=3, tail_threshold=0.9)
    jobs = continuations(
        replace(base, policy=adaptive), Anchor((3,) * 4, 0), guided=False, count=1, arm="", tail_width=1
    )
    assert (jobs[0].policy.tail_width, jobs[0].policy.tail_threshold) == (1, None)


def test_run_all_waits_for_the_engines_thread() -> None:
    """The same continuations through the engine's own thread give the same texts as stepping it by hand."""
    job, start = job_of(TABLES, Rules(4), None), [TABLES.mask_id] * 4
    jobs = continuations(job, Anchor(tuple(start), 0), guided=True, count=40, arm="thread")
    by_hand = engine_of(TABLES)
    expected = [outcome.tokens for outcome in finish(by_hand, by_hand.submit_all(jobs))]
    with engine_of(TABLES) as engine:
        assert [handle.result(0).tokens for handle in run_all(engine, jobs, timeout=600)] == expected
