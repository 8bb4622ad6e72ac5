"""The engine on the real architectures, against a plainly written decoding loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingError
from decoding.engine.runner import Runner
from decoding.gates.builtin import DrainedGate, FractionGate, NeverGate
from decoding.gates.protocol import Gate
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.models.tools.make_random import Arch
from decoding.models.transformer.adapter import TransformerModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.request.job import Job, Sampling
from decoding.sampling.noise import NoiseKey
from tests.decoding.models.reference import Reference

PROMPTS = ("Say yes.", "Write one sentence about the dog, the ball and the beach.", "No comma, please: red, blue.")
FULL = DecodingPolicy("full_cfg", guidance_scale=2.0, gate=GateSettings("never"))
GREEDY = Sampling(temperature=0.0)


def job(
    model: DenoisingModel, text: str, policy: DecodingPolicy = FULL, gate: Gate | None = None, **fields: object
) -> Job:
    """A greedy job of 16 positions and steps, but for `fields`."""
    made = Job(
        prompt_ids=tuple(model.codec.encode_prompt(text)),
        gen_length=16,
        steps=16,
        policy=policy,
        noise=NoiseKey(5),
        gate=gate or NeverGate(),
        sampling=GREEDY,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.fixture
def invariant(model: DenoisingModel) -> Iterator[Engine]:
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        yield engine


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize(("length", "steps", "block"), [(16, 16, None), (16, 16, 4), (24, 9, 8), (10, 14, 5)])
@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_serial_greedy_decoding_equals_the_published_loop(
    invariant: Engine, reference: Reference, length: int, steps: int, block: int | None, scale: float
) -> None:
    model = invariant.model
    policy = FULL if scale else DecodingPolicy("base", guidance_scale=0.0, gate=GateSettings("never"))
    shape = {"gen_length": length, "steps": steps, "block_length": block}
    outcomes = [h.result(600) for h in invariant.submit_all([job(model, text, policy, **shape) for text in PROMPTS])]
    for text, outcome in zip(PROMPTS, outcomes, strict=True):
        prompt = model.codec.encode_prompt(text)
        assert list(outcome.tokens) == reference.generate(prompt, length, steps, block, scale)
        assert outcome.ledger.total == (2 if scale else 1) * steps


def test_guidance_changes_the_text(reference: Reference, model: DenoisingModel) -> None:
    """Otherwise the test above could not tell the branches apart."""
    prompt = model.codec.encode_prompt(PROMPTS[1])
    assert reference.generate(prompt, 16, 16, None, 0.0) != reference.generate(prompt, 16, 16, None, 2.0)


def test_unconditional_branch_masks_the_prompt(model: DenoisingModel, reference: Reference, arch: Arch) -> None:
    """Two prompts of equal length give one unconditional branch, and it is the reference's."""
    pairs = [model.codec.encode_prompt(text) for text in ("Say yes about a dog", "Say yes about a ball")]
    hidden = [[i if i in model.spec.keep_prompt_ids else model.spec.mask_id for i in prompt] for prompt in pairs]
    assert hidden[0] == hidden[1]
    assert (hidden[0][0] == model.spec.mask_id) is (arch == "llada")
    canvas = [model.spec.mask_id] * 4
    row = torch.tensor([hidden[0] + canvas])
    logits = model.project(
        model.encode(row, torch.tensor([len(hidden[0])]), torch.tensor([row.shape[1]]), always_mask=True)
    )
    c, guided = reference.logits(pairs[0] + canvas)[-4:], reference.guided(pairs[0], canvas, 1.0)
    torch.testing.assert_close(logits[-4:], 2 * c - guided, rtol=0, atol=3e-5)


def mixed_jobs(model: DenoisingModel) -> list[Job]:
    """Jobs of every kind, sampled at temperature 1."""
    warm = {"sampling": Sampling(temperature=1.0)}
    boost = DecodingPolicy(
        "handoff", order="guidance_boost", guided_width=2, gate=GateSettings("fraction", fraction=0.25)
    )
    drained = DecodingPolicy("parallel_tail", tail_width=4, gate=GateSettings("drained", threshold=0.9))
    base = DecodingPolicy("base", guidance_scale=0.0, gate=GateSettings("never"))
    return [
        job(model, PROMPTS[0], **warm),
        job(model, PROMPTS[1], boost, FractionGate(0.25), **warm),
        job(model, PROMPTS[2], drained, DrainedGate(0.9), gen_length=24, steps=24, block_length=8, **warm),
        job(model, PROMPTS[1], base, gen_length=9, steps=9, **warm),
        job(model, "", drained, DrainedGate(0.9), sampling=Sampling(temperature=0.7, eos_fill=True, top_p=0.9)),
    ]


def test_every_policy_runs_and_neighbours_never_matter(model: DenoisingModel) -> None:
    """In invariant mode a job's tokens, confidences and ledger are the same alone and in company, bit for bit."""
    jobs = mixed_jobs(model)
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        together = [handle.result(600) for handle in engine.submit_all(jobs)]
        alone = [engine.submit(one).result(600) for one in jobs]
    for company, solo in zip(together, alone, strict=True):
        assert company.tokens == solo.tokens
        assert [s.confidence for s in company.trace.steps] == [s.confidence for s in solo.trace.steps]
        assert company.ledger.rows == solo.ledger.rows
        assert model.spec.mask_id not in company.tokens
        assert not set(company.content) & set(model.spec.suppressed_ids)
    assert together[1].handoff_step == 4
    assert together[2].handoff_step is not None


def test_features_are_bit_equal_in_fixed_tiles(model: DenoisingModel) -> None:
    spec, length = model.spec, 56
    rows = [(model.codec.encode_prompt(text) + [spec.mask_id] * 8)[-length:] for text in PROMPTS]

    def encode(order: list[int]) -> dict[int, torch.Tensor]:
        ids = torch.full((8, length), spec.mask_id)
        lengths = torch.full((8,), length)
        for slot, row in enumerate(order):
            ids[slot, : len(rows[row])] = torch.tensor(rows[row])
            lengths[slot] = len(rows[row])
        features = model.encode(ids, torch.zeros(8, dtype=torch.long), lengths, always_mask=True).unflatten(
            0, (8, length)
        )
        return {row: features[slot, : len(rows[row])] for slot, row in enumerate(order)}

    solo = {row: encode([row])[row] for row in range(3)}
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0, 1]):
        for row, features in encode(order).items():
            assert torch.equal(features, solo[row])


def test_nan_weights_fail_their_request_alone(folder: Path) -> None:
    model = load_model(str(folder))
    assert isinstance(model, TransformerModel)
    (poisoned,) = model.codec.encode(" dog")
    model.network.embedding.weight[poisoned] = float("nan")
    clean: Callable[[str], Job] = lambda text: job(model, text)  # noqa: E731
    with Engine(model) as engine:
        good, bad, other = engine.submit_all([clean("Say yes."), clean("Write a dog"), clean("No ball")])
        with pytest.raises(DecodingError, match="NaN"):
            bad.result(600)
        for handle in (good, other):
            assert model.spec.mask_id not in handle.result(600).tokens


def test_bfloat16_decodes(folder: Path) -> None:
    model = load_model(str(folder), dtype="bfloat16")
    with Engine(model) as engine:
        outcome = engine.submit(job(model, PROMPTS[1])).result(600)
    assert model.spec.mask_id not in outcome.tokens
    assert model.codec.decode(list(outcome.content))
