"""Guidance away from a negative prompt: exact, alone as in a batch, and of any length."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from decoding.request.canvas import CanvasState
from decoding.request.job import Job
from decoding.request.validation import JobError, check_job
from tests.decoding.tiny import job


def asked(model: MiniModel, negative: str | None, **fields: object) -> Job:
    ids = None if negative is None else tuple(model.codec.encode_prompt(negative))
    return job(model, seed=3, negative_ids=ids, **fields)  # type: ignore[arg-type]


def tokens(engine: Engine, *jobs: Job) -> list[tuple[int, ...]]:
    return [tuple(handle.result(60).tokens) for handle in engine.submit_all(jobs)]


def test_the_masked_prompt_as_a_negative_one_changes_nothing(engine: Engine, model: MiniModel) -> None:
    plain = asked(model, None)
    masked = replace(plain, negative_ids=tuple(model.spec.unconditional_prompt(plain.prompt_ids)))
    assert tokens(engine, masked) == tokens(engine, plain)


def test_the_prompt_as_its_own_negative_cancels_guidance(engine: Engine, model: MiniModel) -> None:
    """c + w(c - c) = c: the text of the base decoder, at twice its rows."""
    itself = asked(model, "a b c")
    (text,) = tokens(engine, itself)
    assert text == tokens(engine, job(model, preset="base", seed=3))[0]
    assert text != tokens(engine, asked(model, None))[0]


@pytest.mark.parametrize("negative", ["d", "d e f g h i j k l m n o p q r s t u v w x y z"])
def test_the_guided_logits_are_those_of_both_prompts(model: MiniModel, negative: str) -> None:
    """One step against the two forwards by hand: c + w(c - u), where u has read the negative prompt."""
    one = asked(model, negative)
    spec = model.spec
    state = CanvasState(one, spec.mask_id, spec.end_ids)
    (step,) = Runner(model).run([state])
    canvas = [spec.mask_id] * one.gen_length
    c, u = (_logits(model, ids, canvas) for ids in (one.prompt_ids, one.negative_ids or ()))
    guided = c + one.policy.guidance_scale * (c - u)
    guided[:, list(spec.suppressed_ids)] = float("-inf")
    probabilities = guided.softmax(-1).gather(1, step.candidates.token[:, None])[:, 0]
    assert torch.allclose(step.candidates.probability.float(), probabilities.float(), atol=1e-5)


def _logits(model: MiniModel, prompt: tuple[int, ...], canvas: list[int]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *canvas]])
    with torch.inference_mode():
        features = model.encode(ids, torch.tensor([len(prompt)]), torch.tensor([ids.shape[1]]), always_mask=False)
        return model.project(features[len(prompt) :])


def test_what_shares_the_batch_changes_nothing(engine: Engine, model: MiniModel) -> None:
    jobs = [asked(model, text, length=8) for text in (None, "d", "x y z w v u t s r q p o")]
    alone = [tokens(engine, one)[0] for one in jobs]
    assert tokens(engine, *jobs, *(job(model, seed=seed, length=8) for seed in range(9)))[:3] == alone
    assert len(set(alone)) == 3


def test_a_negative_prompt_is_as_long_as_a_prompt_may_be(model: MiniModel) -> None:
    too_long = replace(asked(model, None), negative_ids=(5,) * (model.spec.max_prompt + 1))
    with pytest.raises(JobError, match="takes at most 448") as caught:
        check_job(too_long, model.spec)
    assert caught.value.param == "negative_prompt"
    with pytest.raises(JobError, match="outside the vocabulary"):
        check_job(replace(too_long, negative_ids=(model.spec.vocab_size,)), model.spec)
