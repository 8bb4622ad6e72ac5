"""Guidance-first decoding: several boosted tokens a step, started words first, guidance that comes back."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.gates.builtin import DrainedGate
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.decoding_policy import PolicyError
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import Attempt, Job, Sampling
from tests.decoding.tiny import ends_early_model, job

FIRST = {"order": "guidance_boost", "boost_threshold": 0.05, "guided_width": 4}


def spelling(model: MiniModel, continuations: frozenset[int]) -> MiniModel:
    """The model, which now says which of its tokens continue a word."""
    other = copy.copy(model)
    other.spec = replace(model.spec, continuation_ids=continuations)
    return other


def decode(model: MiniModel, gate: GateSettings, **policy: object) -> DecodingResult:
    request = job(
        model,
        preset="handoff",
        gate=DrainedGate(gate.threshold or 0.5),
        length=24,
        policy={"gate": gate, **policy},
        record="stats",
    )
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        outcome = engine.submit(request).result(600)
        assert outcome.ledger.total == engine.runner.counts.total
    return outcome


def test_a_model_s_margins_keep_wanted_words_off_the_ends(model: MiniModel) -> None:
    """Serial guided steps: with a quarter of 12 positions at each end, the first six commits stand between them."""
    other = copy.copy(model)
    other.spec = replace(model.spec, text_margins=(0.25, 0.25))
    request = job(model, preset="full_cfg", length=12, policy={"order": "guidance_boost"}, record="stats")
    commits = []
    for one in (model, other):
        with Engine(one) as engine:
            steps = engine.submit(request).result(600).trace.steps
        commits.append([position for stats in steps for position in stats.positions])
    ends = {0, 1, 2, 9, 10, 11}
    assert not ends & set(commits[1][:6])
    assert ends & set(commits[0][:6])


def test_drained_waits_for_half_written_words(model: MiniModel) -> None:
    """With every token a continuation, any committed neighbour opens a word: no handoff while a mask has one."""
    every = frozenset(range(model.spec.vocab_size))
    free = decode(model, GateSettings("drained", threshold=0.9))
    bound = decode(spelling(model, every), GateSettings("drained", threshold=0.9))
    assert free.handoff_step is not None
    assert bound.handoff_step is None
    assert bound.trace.steps[0].word_open


@pytest.mark.parametrize("tail", [1, 3])
def test_guidance_comes_back_to_look_and_is_charged_as_a_probe(model: MiniModel, tail: int) -> None:
    outcome = decode(model, GateSettings("drained", threshold=0.97, recheck=2), tail_width=tail)
    phases = [stats.phase for stats in outcome.trace.steps]
    looks = [i for i in range(2, len(phases)) if phases[i] == "guided" and phases[i - 2 : i] == ["base", "base"]]
    assert looks
    assert "base" in phases[looks[0] + 1 :] or looks[-1] == len(phases) - 1
    assert outcome.ledger.of("unconditional", "probe") == len(looks)
    assert outcome.ledger.of("unconditional") == phases.count("guided")
    assert outcome.ledger.of("conditional", "generate") == len(phases)
    base_runs = "".join(phase[0] for phase in phases).split("g")
    assert max(map(len, base_runs)) <= 2


def test_guidance_stays_where_a_look_finds_it_undrained(model: MiniModel) -> None:
    """A gate that lets go once and then never again: after the first look every step is guided."""

    class Once(DrainedGate):
        def _one(self, view):  # type: ignore[no-untyped-def]
            return replace(super()._one(view), handoff=view.step == 3)

    gate = GateSettings("drained", threshold=0.5, recheck=2)
    request = job(model, preset="handoff", gate=Once(0.5), length=12, policy={"gate": gate}, record="stats")
    with Engine(model) as engine:
        outcome = engine.submit(request).result(600)
    assert [stats.phase[0] for stats in outcome.trace.steps] == list("gggbbggggggg")
    assert outcome.ledger.of(purpose="probe") == 1


def test_boosted_steps_are_fewer_and_the_ledger_counts_them(model: MiniModel) -> None:
    serial = decode(model, GateSettings("drained", threshold=0.2), order="guidance_boost")
    pieces = model.codec.pieces(list(range(model.spec.vocab_size)))
    continuing = frozenset(i for i, piece in enumerate(pieces) if piece.startswith("##"))
    wide = decode(spelling(model, continuing), GateSettings("drained", threshold=0.2), **FIRST)
    assert wide.ledger.total < serial.ledger.total
    assert max(len(stats.positions) for stats in wide.trace.steps if stats.phase == "guided") in (2, 3, 4)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"boost_threshold": 0.5}, "boost_threshold"),
        ({"boost_threshold": 0.5, "guided_width": 4}, "boost_threshold"),
        ({"boost_threshold": 1.5, "guided_width": 4, "order": "guidance_boost"}, "boost_threshold"),
    ],
)
def test_what_a_boost_threshold_needs(given: dict[str, object], param: str) -> None:
    with pytest.raises(PolicyError) as error:
        resolve_policy("handoff", given)
    assert error.value.param == param


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_recheck_is_a_whole_number(value: object) -> None:
    with pytest.raises(PolicyError, match=r"whole number"):
        GateSettings("drained", recheck=value)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="guidance may come back"):
        resolve_policy("handoff", {"gate": GateSettings("drained", recheck=2), "tail_reuse": "prefix"})


def first(model: MiniModel, seed: int = 0, recheck: int | None = None, **fields: object) -> Job:
    """Guidance first by the tokens' own pace."""
    gate = GateSettings("drained", threshold=0.9, recheck=recheck)
    return job(
        model,
        preset="handoff",
        gate=DrainedGate(0.9),
        length=24,
        seed=seed,
        policy={"gate": gate, "tail_width": 3, **FIRST},
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("given", [{"boost_threshold": 0.95}, {"tail_threshold": 0.95}, {}], ids=str)
def test_the_estimate_is_an_upper_one_whatever_pace_the_tokens_set(model: MiniModel, given: dict[str, float]) -> None:
    policy = {**FIRST, "tail_width": 3, **given}
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        for fraction in (0.1, 0.5):
            for steps in (24, 12, 30):
                asked = job(model, preset="handoff", fraction=fraction, length=24, steps=steps, policy=policy)
                handle = engine.submit(asked)
                assert handle.result(600).ledger.total <= handle.estimated_rows <= 2 * steps


def test_no_boosted_attempt_begins_that_could_exceed_the_budget(model: MiniModel) -> None:
    """The attempts hardly ever boost, so each takes far more rows than its width promises."""
    policy = resolve_policy(
        "handoff", {**FIRST, "boost_threshold": 0.95, "gate": GateSettings("drained", threshold=0.01)}
    )
    predicate = parse({"type": "keywords", "keywords": ["zebra"]})
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        for budget in (48, 60, 100):
            asked = job(model, preset="auto", length=24, policy={"budget_rows": budget}, predicate=predicate)
            outcome = engine.submit(replace(asked, attempts=(Attempt(policy, DrainedGate(0.01)),) * 4)).result(600)
            assert 40 < outcome.ledger.total <= budget
            assert len(outcome.passes) == budget // 48


@pytest.mark.parametrize("recheck", [None, 2])
def test_rows_are_skipped_by_an_end_of_text_only(model: MiniModel, recheck: int | None) -> None:
    """A run that comes back to guidance, or is ahead of its schedule, is no run that a fill has shortened."""
    filled = Sampling(eos_fill=True)
    early = ends_early_model()
    skipped = 0
    for which in (model, early):
        with Engine(which, runner=Runner(which, invariant=True)) as engine:
            for seed in range(6):
                request = first(which, seed, recheck, sampling=filled)
                outcome = engine.submit(request).result(600)
                any_fill = any(stats.filled for stats in outcome.trace.steps)
                ledger = outcome.ledger
                assert (ledger.skipped_by_eos > 0) == any_fill
                assert ledger.saved(48) == 48 - ledger.total - ledger.skipped_by_eos
                skipped += any_fill
    assert skipped


def test_company_never_matters(model: MiniModel) -> None:
    """In invariant mode, bit for bit: boosted, re-checked, in blocks, filled, beside plain requests; and again."""
    jobs = [
        first(model, 1),
        first(model, 2, recheck=2),
        job(model, length=9, seed=3),
        first(model, 4, recheck=3, block_length=8, sampling=Sampling(temperature=0.7, eos_fill=True, top_p=0.9)),
        first(model, 5, sampling=Sampling(temperature=0.0)),
        job(model, preset="base", length=16, seed=6, policy={"tail_width": 4}),
    ]
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        together = [handle.result(600) for handle in engine.submit_all(jobs)]
        alone = [engine.submit(one).result(600) for one in reversed(jobs)][::-1]
    for company, solo in zip(together, alone, strict=True):
        assert company.tokens == solo.tokens
        assert company.ledger.rows == solo.ledger.rows
        assert company.trace.steps == solo.trace.steps
        assert model.spec.mask_id not in company.tokens


def test_a_look_that_lies_beyond_the_run_never_comes(model: MiniModel) -> None:
    once, never = first(model, 1, recheck=100), first(model, 1)
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        outcomes = [engine.submit(one).result(600) for one in (once, never)]
    assert outcomes[0].tokens == outcomes[1].tokens
    assert outcomes[0].ledger.rows == outcomes[1].ledger.rows
