"""Selector `keyword_argmax`: one guided look tells where a missing keyword would go."""

from __future__ import annotations

from string import ascii_lowercase

import pytest
import torch

from decoding.constraints.paper.keywords import Keywords
from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.models.bert_mini.network import MiniModel
from decoding.models.protocol import TextCodec
from decoding.policy.repair import Repair
from decoding.repair.keyword_argmax import first_tokens
from decoding.repair.selectors import candidates_of
from decoding.request.row_estimates import most_rows
from decoding.sampling.kernel import suppress, tilt
from tests.decoding.repair.repairing import decode, repaired

WEIGHT = 2.0


def looked(model: MiniModel, outcome: DecodingResult, weight: float) -> dict[int, tuple[float, int]]:
    """Probability and id of the guided argmax at every candidate of a first text, all of them open."""
    canvas, prompt = list(outcome.passes[0].tokens), list(outcome.job.prompt_ids)
    opened = candidates_of(canvas, model.spec.mask_id, model.spec.end_ids)
    for position in opened:
        canvas[position] = model.spec.mask_id
    rows = torch.tensor([prompt + canvas, model.spec.unconditional_prompt(prompt) + canvas])
    with torch.inference_mode():
        features = model.encode(
            rows, torch.tensor([len(prompt)] * 2), torch.tensor([rows.shape[1]] * 2), always_mask=False
        )
        at = torch.tensor([len(prompt) + position for position in opened])
        logits = tilt(
            model.project(features[at]),
            model.project(features[at + rows.shape[1]]),
            torch.full((len(opened),), weight),
        )
        best = suppress(logits, torch.tensor(model.spec.suppressed_ids)).softmax(-1).max(-1)
    return dict(zip(opened, zip(best.values.tolist(), best.indices.tolist(), strict=True), strict=True))


@pytest.mark.parametrize("weight", [WEIGHT, 0.0])
def test_it_reopens_where_the_missing_keyword_is_the_likeliest_token(
    engine: Engine, model: MiniModel, weight: float
) -> None:
    compared = 0
    for letter in ascii_lowercase:
        asked = repaired(
            model,
            Repair("keyword_argmax", reopen=1, max_rounds=1),
            Keywords((f"{letter}zqzq",)),
            policy={"guidance_scale": weight},
        )
        (outcome,) = decode(engine, asked)
        wanted = model.codec.encode(letter)[0]
        places = {p: prob for p, (prob, token) in looked(model, outcome, weight).items() if token == wanted}
        assert outcome.ledger.of(purpose="rollout") == (2 if weight else 1)
        assert outcome.ledger.total <= most_rows(asked)
        if places:
            assert outcome.passes[1].reopened == (max(places, key=lambda p: places[p]),)
            compared += 1
    assert compared


def test_nothing_is_looked_at_where_no_keyword_is_missing(engine: Engine, model: MiniModel) -> None:
    first, second = decode(
        engine,
        repaired(model, Repair("constraint_aware", max_rounds=2)),
        repaired(model, Repair("keyword_argmax", max_rounds=2)),
    )
    assert [attempt.tokens for attempt in first.passes] == [attempt.tokens for attempt in second.passes]
    assert second.ledger.of(purpose="rollout") == 0


def test_a_phrase_may_begin_a_text_or_follow_a_word() -> None:
    class Spaced(TextCodec):
        def encode(self, text: str) -> list[int]:
            return [ord(text[0])] if text else []

    assert first_tokens(["dog", "ball"], Spaced()) == {ord("d"), ord("b"), ord(" ")}
