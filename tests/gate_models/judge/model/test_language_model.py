"""SmolLM2 as the judge's reader; skipped where the extra `judge` is not installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gate_models.offline.judge.model.features import matrix
from gate_models.offline.judge.model.judge import Judge
from gate_models.offline.judge.model.language_model import BUDGET, SmolLM2, batches, missing_packages, padded, written
from gate_models.offline.judge.model.probe import LAYER, Probe, probe_hash, shipped_probe

needs_extra = pytest.mark.skipif(bool(missing_packages()), reason="the extra `judge` is not installed")
TEXTS = ["A dog runs on the beach.", "dogs.", "", "The man is chess is chess a playing the of chess and chess."]


def test_a_text_is_scored_with_a_capital() -> None:
    assert written(" a dog. ") == "A dog."
    assert written("") == ""


def test_batches_hold_every_text_once_and_little_padding() -> None:
    lengths = [3, 40, 2000, 0, 17, *[9] * 200]
    found = list(batches(lengths))
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    for batch in found:
        width = padded(max(lengths[row] for row in batch) + 1)
        assert width % 8 == 0
        assert len(batch) == 1 or len(batch) * width <= BUDGET


def test_a_probe_comes_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    probe = Probe().eval()
    probe.save(tmp_path / "probe.npz")
    again = Probe.load(tmp_path / "probe.npz")
    assert probe_hash(again) == probe_hash(probe) != probe_hash(shipped_probe())
    odd = np.array([0.5, -1.0, 2.0], np.float32)
    assert again.logit(odd) == pytest.approx(probe.logit(odd))
    assert again.logit(odd[:0]) == 0.0


def test_padding_changes_no_pooled_logit() -> None:
    probe, odd = shipped_probe(), torch.randn(2, 5)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = probe.pooled(odd, real)
    assert float(found[1]) == pytest.approx(probe.logit(odd[1, :3].numpy()), abs=1e-5)


@pytest.fixture(scope="module")
def model() -> SmolLM2:
    return SmolLM2(torch.float32)


@needs_extra
@pytest.mark.slow
def test_surprisals_are_the_chain_rule_and_ignore_the_batch(model: SmolLM2) -> None:
    together = model.surprisals(TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        ids = model.ids(text)
        assert found.ids.tolist() == ids
        [alone] = model.surprisals([text])
        assert np.allclose(alone.nats, found.nats, atol=1e-3)
        assert np.allclose(alone.odd, found.odd, atol=1e-2)
    ids, nats = together[0].ids.tolist(), []
    for at in range(len(ids)):
        with torch.inference_mode():
            logits = model._model(torch.tensor([[0, *ids[:at]]])).logits[0, -1].float()
        nats.append(-float(logits.log_softmax(-1)[ids[at]]))
    assert together[0].nats.tolist() == pytest.approx(nats, abs=1e-3)


@needs_extra
@pytest.mark.slow
def test_the_probe_sees_the_state_after_each_token(model: SmolLM2) -> None:
    ids = model.ids(TEXTS[0])
    tokens = model.tokens([ids, ids[:3]])
    with torch.inference_mode():
        states = model._model.model(torch.tensor([[0, *ids]]), output_hidden_states=True).hidden_states[LAYER]
    assert torch.allclose(tokens.states[: len(ids)], states[0, 1:], atol=1e-2)
    assert torch.allclose(tokens.states[len(ids) :], states[0, 1:4], atol=1e-2)


@needs_extra
@pytest.mark.slow
def test_the_shipped_judge_tells_good_from_bad(model: SmolLM2) -> None:
    judge = Judge(Judge.load(model=model).learned, model)
    good = ["Two children are playing with a ball in the park.", "She opened the door and looked outside."]
    bad = [
        "A man is man is a motor motorcycle in the hill water.",
        "Children a park ball are with in playing the two.",
        "They like the blocks and blocks. They feel like the chainsaw. They do like the blocks.",
    ]
    assert all(reading.readable for reading in judge.readable(good))
    assert not any(reading.readable for reading in judge.readable(bad))
    assert np.isfinite(matrix(TEXTS, model)).all()
