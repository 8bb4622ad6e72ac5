"""The counters of a server under a concurrent mixed load, clients that leave and deadlines among it, against what its
answers say.
"""

from __future__ import annotations

from collections import Counter

import pytest

from service.metrics import definitions as define
from tests.service.process import total

pytestmark = pytest.mark.slow
PER_SAMPLE = {
    "forward_rows_spent_total": "total",
    "forward_rows_full_cfg_equivalent_total": "full_cfg_equivalent",
    "forward_rows_skipped_by_eos_total": "skipped_by_eos",
}
BOUNDS = (*define.HANDOFF.buckets, float("inf"))


@pytest.fixture
def counted(observed):
    return observed.server.wait_idle()


@pytest.fixture
def samples(observed):
    return observed.samples


@pytest.mark.parametrize(("metric", "field"), PER_SAMPLE.items(), ids=PER_SAMPLE)
def test_rows_by_policy_and_family(counted, samples, metric, field):
    expected = Counter()
    for policy, family, sample in samples:
        expected[policy, family] += sample["forward_evaluations"][field]
    for policy in define.SPENT.labels["policy"]:
        for family in define.SPENT.labels["family"]:
            assert total(counted, metric, policy=policy, family=family) == expected[policy, family], (policy, family)
    assert total(counted, metric) == sum(expected.values()) > 0


def test_every_row_of_a_sample_is_spent_or_abandoned(counted, samples):
    background = sum(total(counted, "forward_rows_total", purpose=purpose) for purpose in define.BACKGROUND)
    assert background > 0
    spent, abandoned = total(counted, "forward_rows_spent_total"), total(counted, "forward_rows_abandoned_total")
    assert abandoned > 0
    assert total(counted, "forward_rows_total") == spent + abandoned + background


def test_rows_of_steps_equal_rows_of_requests(counted):
    rows = total(counted, "forward_rows_total")
    guided, base = (total(counted, "denoising_steps_total", phase=phase) for phase in ("guided", "base"))
    assert rows == 2 * guided + base == total(counted, "step_rows_sum")
    assert total(counted, "forward_rows_total", branch="unconditional") == guided
    assert total(counted, "padding_rows_total") > 0


def test_decisions_outcomes_and_fallbacks(counted, samples):
    decisions, outcomes, fallbacks, evidence = Counter(), Counter(), Counter(), Counter()
    for policy, family, sample in samples:
        gate = sample["gate"]
        decisions[family, gate["source"], gate["decision"]] += 1
        evidence[gate["evidence"], gate["decision"]] += 1
        fallbacks[family] += gate["fallback_reason"] is not None
        if sample["satisfied"] is not None:
            outcomes[family, policy, "satisfied" if sample["satisfied"] else "failed"] += 1
    for values in define.DECISIONS.series():
        labels = dict(zip(define.DECISIONS.labels, values, strict=True))
        assert total(counted, "gate_decisions_total", **labels) == decisions[values], values
    for values in define.EVIDENCE.series():
        labels = dict(zip(define.EVIDENCE.labels, values, strict=True))
        assert total(counted, "gate_evidence_total", **labels) == evidence[values], values
    assert {known for known, _ in evidence} == {"audited", "pooled", "none"}
    for values in define.OUTCOMES.series():
        labels = dict(zip(define.OUTCOMES.labels, values, strict=True))
        assert total(counted, "constraint_outcomes_total", **labels) == outcomes[values], values
    for family in define.FALLBACKS.labels["family"]:
        assert total(counted, "gate_fallbacks_total", family=family) == fallbacks[family], family
    assert sum(fallbacks.values()) > 0


def test_repair_rounds(counted, samples):
    rounds = Counter(
        (attempt["selector"], "recovered" if attempt["satisfied"] else "failed")
        for _, _, sample in samples
        if sample["repair"]
        for attempt in sample["repair"]["passes"]
        if attempt["selector"]
    )
    assert sum(rounds.values()) > 0
    for selector, outcome in define.REPAIRS.series():
        assert total(counted, "repair_rounds_total", selector=selector, outcome=outcome) == rounds[selector, outcome]
    assert total(counted, "forward_rows_total", purpose="repair") > 0


def test_the_handoff_histogram(counted, samples):
    fractions = [s["gate"]["handoff_fraction"] for _, _, s in samples if s["gate"]["decision"] == "handoff"]
    assert fractions
    assert total(counted, "handoff_fraction_sum") == pytest.approx(sum(fractions))
    for bound in BOUNDS:
        shown = total(counted, "handoff_fraction_bucket", le="+Inf" if bound == BOUNDS[-1] else f"{bound:.2g}")
        if bound in (0.3, BOUNDS[-1]):
            assert shown == sum(fraction <= bound for fraction in fractions)


def test_requests_by_end(counted, observed):
    answered = sum(total(counted, "requests_total", finish_reason=reason) for reason in ("stop", "length"))
    assert answered == len(observed.answers)
    assert total(counted, "requests_total", finish_reason="deadline") >= 1
    assert total(counted, "requests_total", finish_reason="cancelled") >= 2
    assert total(counted, "requests_total", finish_reason="error") == 0
    assert total(counted, "request_duration_seconds_count") == total(counted, "requests_total")
    assert total(counted, "admission_rejections_total", reason="queue_full") >= 1
    assert total(counted, "committor_rollouts_total") > 0
    tokens = sum(answer["gen_length"] * len(answer["samples"]) for answer in observed.answers)
    assert total(counted, "committed_tokens_total") >= tokens
