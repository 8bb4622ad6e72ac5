"""`tail_reuse`: opt-in, exact where nothing is reused, honest about it elsewhere, refused where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.rollouts import continuations
from decoding.engine.runner import Runner
from decoding.gates.builtin import DrainedGate
from decoding.models.bert_mini.network import MiniModel
from decoding.models.protocol import KVCache, ReuseMode, ReuseRow
from decoding.policy.checks import PolicyError
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import Anchor, Job, regime_of
from decoding.request.validation import JobError
from tests.decoding.tiny import job, tiny_model

MODES: tuple[ReuseMode, ...] = ("prefix", "dual")
SHAPES: tuple[dict[str, Any], ...] = (
    {"preset": "base"},
    {"preset": "base", "length": 16, "steps": 20, "block_length": 4},
    {"preset": "handoff", "fraction": 0.4, "prompt": "a longer prompt than the others"},
    {"preset": "parallel_tail", "fraction": 0.25, "policy": {"tail_width": 3}, "length": 24, "block_length": 8},
)


@pytest.fixture(scope="module")
def model() -> MiniModel:
    return tiny_model(seed=2)


def reusing(made: Job, mode: ReuseMode, refresh: int = 8) -> Job:
    return replace(made, policy=replace(made.policy, tail_reuse=mode, tail_refresh=refresh))


def run(model: MiniModel, *jobs: Job) -> list[DecodingResult]:
    with Engine(model) as engine:
        return [handle.result(600) for handle in engine.submit_all(jobs)]


@pytest.mark.parametrize("mode", MODES)
def test_refreshing_every_step_gives_the_exact_text(model: MiniModel, mode: ReuseMode) -> None:
    plain = [job(model, seed=seed, **shape) for seed in range(4) for shape in SHAPES]
    for exact, reused in zip(run(model, *plain), run(model, *(reusing(j, mode, 1) for j in plain)), strict=True):
        assert reused.tokens == exact.tokens
        assert reused.ledger == exact.ledger
        assert reused.handoff_step == exact.handoff_step
        assert not reused.approximate


@pytest.mark.parametrize("mode", MODES)
def test_reuse_costs_the_same_rows_and_fewer_tokens(model: MiniModel, mode: ReuseMode) -> None:
    plain = [job(model, seed=seed, **shape) for seed in range(4) for shape in SHAPES]
    exact, reused = run(model, *plain), run(model, *(reusing(j, mode) for j in plain))
    for before, after in zip(exact, reused, strict=True):
        assert after.approximate
        assert not before.approximate
        assert model.spec.mask_id not in after.tokens
        assert after.ledger.rows == before.ledger.rows
        assert after.ledger.tokens < before.ledger.tokens
        if after.handoff_step:  # guided steps are never approximate
            guided = [[(s.positions, s.tokens) for s in o.trace.steps if s.phase == "guided"] for o in (before, after)]
            assert guided[0] == guided[1]
    assert any(a.tokens != b.tokens for a, b in zip(exact, reused, strict=True))


def test_a_block_alone_costs_least(model: MiniModel) -> None:
    made = job(model, preset="base", length=16, block_length=4)
    length = len(made.prompt_ids)
    exact, prefix, dual = run(model, made, *(reusing(made, mode) for mode in MODES))
    assert exact.ledger.tokens == 16 * (length + 16)
    assert prefix.ledger.tokens == sum((length + 16) + 3 * (16 - start) for start in (0, 4, 8, 12))
    assert dual.ledger.tokens == 4 * (length + 16) + 12 * 4


def test_neighbours_and_their_modes_do_not_matter(model: MiniModel) -> None:
    jobs = [job(model, seed=7, **shape) for shape in SHAPES]
    jobs += [reusing(made, mode, refresh) for made in jobs for mode in MODES for refresh in (2, 5)]
    together = run(model, *jobs)
    for made, company in zip(jobs, together, strict=True):
        (alone,) = run(model, made)
        assert (company.tokens, company.ledger) == (alone.tokens, alone.ledger)


def test_a_window_on_an_unchanged_row_is_exact(model: MiniModel) -> None:
    """What was kept is what a full forward gives, for both halves of the last layer."""
    mask = model.spec.mask_id
    for mode in MODES:
        rows = []
        for text in ("a", "some more letters", "abc"):
            prompt = model.codec.encode_prompt(text)
            rows.append(ReuseRow(prompt + [mask] * 12, len(prompt), [5, 7], (4, 8), KVCache(mode, 8)))
        for _ in range(2):
            for row, encoded in zip(rows, model.encode_reusing(rows), strict=True):
                prompt_length, length = torch.tensor([row.prompt_length]), torch.tensor([len(row.ids)])
                whole = model.encode(torch.tensor([row.ids]), prompt_length, length, always_mask=True)
                expected = whole[torch.tensor(row.scored) + row.prompt_length]
                torch.testing.assert_close(encoded, expected, rtol=0, atol=2e-5)
        assert [row.kept.reused for row in rows] == [1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_window_sees_the_commits_in_it(model: MiniModel, mode: ReuseMode) -> None:
    """Not exact, but nearer to the truth than what was there before them."""
    prompt, mask, kept = model.codec.encode_prompt("a b c"), model.spec.mask_id, KVCache(mode, 8)

    def exact(canvas: list[int]) -> torch.Tensor:
        ids = torch.tensor([prompt + canvas])
        lengths = torch.tensor([ids.shape[1]])
        return model.encode(ids, torch.tensor([len(prompt)]), lengths, always_mask=True)[len(prompt) + 3][None]

    empty, committed = [mask] * 12, [12, 14] + [mask] * 10
    model.encode_reusing([ReuseRow(prompt + empty, len(prompt), [3], (0, 4), kept)])
    (encoded,) = model.encode_reusing([ReuseRow(prompt + committed, len(prompt), [3], (0, 4), kept)])
    assert 1e-4 < (encoded - exact(committed)).norm() < 0.7 * (exact(empty) - exact(committed)).norm()


def test_continuations_from_any_state(model: MiniModel) -> None:
    """Masks left of the block, as in a reopened canvas, are decoded too; guided continuations keep nothing."""
    made = job(model, preset="handoff", fraction=0.5, length=8, block_length=4)
    canvas = [model.spec.mask_id] * 8
    canvas[1] = canvas[5] = 30
    base, guided = (
        continuations(reusing(made, "dual"), Anchor(tuple(canvas), 4), guided=g, count=2, arm="t")
        for g in (False, True)
    )
    results = run(model, *base, *guided)
    assert [outcome.approximate for outcome in results] == [True, True, False, False]
    assert all(model.spec.mask_id not in outcome.tokens for outcome in results)


def test_what_was_kept_ends_with_the_request(model: MiniModel) -> None:
    engine = Engine(model)
    made = job(model, preset="handoff", length=12, gate=DrainedGate(1.0), policy={"gate": GateSettings("drained")})
    handle = engine.submit(reusing(made, "prefix"))
    assert handle.state.kept is None
    while engine.step():
        if not handle.done and handle.state.phase == "base":
            assert handle.state.kept is not None
    assert handle.result().approximate
    assert handle.state.kept is not None
    assert handle.state.kept.layers is None


def test_what_was_kept_ends_with_a_cancellation(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps, and in the middle of one, which its neighbour does not notice."""
    engine = Engine(model)
    idle, busy, neighbour = (engine.submit(reusing(job(model, preset="base", length=12), "prefix")) for _ in range(3))
    engine.step()
    assert idle.state.kept is not None
    idle.cancel()
    assert idle.state.kept is None
    encode = model.encode_reusing

    def cancelling(rows: Sequence[ReuseRow]) -> list[torch.Tensor]:
        busy.cancel()
        return encode(rows)

    monkeypatch.setattr(model, "encode_reusing", cancelling)
    while engine.step():
        pass
    assert busy.state.kept is None
    assert neighbour.result().tokens == run(model, neighbour.job)[0].tokens


@pytest.mark.parametrize(
    ("preset", "given", "param"),
    [
        ("full_cfg", {"tail_reuse": "prefix"}, "tail_reuse"),
        ("handoff", {"gate": GateSettings("never"), "tail_reuse": "dual"}, "tail_reuse"),
        ("handoff", {"tail_reuse": "suffix"}, "tail_reuse"),
        ("handoff", {"tail_refresh": 8}, "tail_refresh"),
        ("base", {"tail_refresh": 4}, "tail_refresh"),
        ("base", {"tail_reuse": "prefix", "tail_refresh": 0}, "tail_refresh"),
        ("base", {"tail_reuse": "prefix", "tail_refresh": 2.0}, "tail_refresh"),
    ],
)
def test_settings_that_cannot_be(preset: str, given: dict[str, Any], param: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve_policy(preset, given)
    assert caught.value.param == param


def test_refresh_alone_is_refused_where_a_policy_is_built_too() -> None:
    with pytest.raises(PolicyError, match="needs tail_reuse"):
        DecodingPolicy("base", guidance_scale=0.0, gate=GateSettings("never"), tail_refresh=2)


@pytest.mark.parametrize("case", ["invariant", "record", "model"])
def test_refused_where_it_is_not_available(model: MiniModel, case: str) -> None:
    made = reusing(job(model, preset="base"), "prefix")
    engine = Engine(model, runner=Runner(model, invariant=case == "invariant"))
    if case == "record":
        made = replace(made, record="stats")
    if case == "model":
        other = tiny_model(seed=2)
        other.spec = replace(other.spec, reuses_key_values=False)
        engine = Engine(other)
    with pytest.raises(JobError) as caught:
        engine.submit(made)
    assert caught.value.param == "policy.tail_reuse"
    assert {"invariant": "batch-invariant", "record": "trace", "model": "tiny"}[case] in str(caught.value)


def test_reuse_is_a_regime_of_its_own(model: MiniModel) -> None:
    made = job(model, preset="handoff", fraction=0.5)
    assert regime_of(made, "hash").tail_reuse is None
    assert regime_of(reusing(made, "dual", 4), "hash").tail_reuse == "dual:4"
