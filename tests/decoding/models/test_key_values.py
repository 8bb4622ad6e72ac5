"""Key-value reuse: exact where nothing is reused, close where it is, and cheaper in tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from decoding.models.protocol import DenoisingModel, KVCache, ReuseMode, ReuseRow
from decoding.models.transformer.adapter import TransformerModel

TEXTS = ("Say yes.", "Write one sentence about the dog and the beach.", "No comma, red or blue?")
CANVAS, BLOCK = 16, 8


@pytest.fixture
def network(model: DenoisingModel) -> TransformerModel:
    assert isinstance(model, TransformerModel)
    return model


def exact(model: TransformerModel, ids: list[int], prompt: int, scored: list[int]) -> Tensor:
    length = torch.tensor([len(ids)])
    return model.encode(torch.tensor([ids]), torch.tensor([prompt]), length, always_mask=True)[
        torch.tensor(scored) + prompt
    ]


def decode(
    model: TransformerModel, mode: ReuseMode | None, texts: tuple[str, ...]
) -> tuple[list[list[int]], list[KVCache]]:
    """Greedy decoding of all `texts` together, a token a step, in blocks; `mode` None: every row is run in full."""
    kept = [KVCache(mode or "prefix", refresh=1) for _ in texts]
    prompts = [model.codec.encode_prompt(text) for text in texts]
    canvases = [[model.spec.mask_id] * CANVAS for _ in texts]
    for start in range(0, CANVAS, BLOCK):
        for _ in range(BLOCK):
            scored = [[i for i in range(start, start + BLOCK) if c[i] == model.spec.mask_id] for c in canvases]
            rows = [
                ReuseRow(p + c, len(p), s, (start, start + BLOCK), k)
                for p, c, s, k in zip(prompts, canvases, scored, kept, strict=True)
            ]
            if mode is None:
                features = [exact(model, row.ids, row.prompt_length, row.scored) for row in rows]
            else:
                features = model.encode_reusing(rows)
            for row, encoded, canvas in zip(rows, features, canvases, strict=True):
                logits = model.project(encoded)
                logits[:, list(model.spec.suppressed_ids)] = -torch.inf
                chances, tokens = torch.softmax(logits, -1).max(-1)
                best = int(chances.argmax())
                canvas[row.scored[best]] = int(tokens[best])
    return canvases, kept


@pytest.mark.parametrize("mode", ["prefix", "dual"])
def test_refreshing_every_step_is_exact(network: TransformerModel, mode: ReuseMode) -> None:
    expected, _ = decode(network, None, TEXTS)
    features, kept = decode(network, mode, TEXTS)
    assert features == expected
    assert [k.tokens for k in kept] == [CANVAS * (len(network.codec.encode_prompt(t)) + CANVAS) for t in TEXTS]


@pytest.mark.parametrize("mode", ["prefix", "dual"])
def test_a_window_on_an_unchanged_row_is_exact(network: TransformerModel, mode: ReuseMode) -> None:
    """What was kept is what a full forward gives; rows of several lengths share the window's batch."""
    mask = network.spec.mask_id
    rows = []
    for text in TEXTS:
        prompt = network.codec.encode_prompt(text)
        rows.append(ReuseRow(prompt + [mask] * CANVAS, len(prompt), [9, 12, 15], (BLOCK, CANVAS), KVCache(mode, 8)))
    for features in (
        network.encode_reusing(rows),
        network.encode_reusing(rows[::-1])[::-1],
        network.encode_reusing(rows[1:2]),
    ):
        for row, encoded in zip(rows if len(features) > 1 else rows[1:2], features, strict=True):
            expected = exact(network, row.ids, row.prompt_length, row.scored)
            torch.testing.assert_close(encoded, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("mode", ["prefix", "dual"])
def test_reuse_is_close_and_cheaper(network: TransformerModel, mode: ReuseMode) -> None:
    """After commits in the block the window sees them; what it misses is their echo in the other positions."""
    mask = network.spec.mask_id
    prompt = network.codec.encode_prompt(TEXTS[1])
    kept, empty = KVCache(mode, 8), [mask] * CANVAS
    block = (0, BLOCK)
    network.encode_reusing([ReuseRow(prompt + empty, len(prompt), [3], block, kept)])
    before = kept.tokens
    committed = network.codec.encode(" dog")[:1] + empty[1:]
    (encoded,) = network.encode_reusing([ReuseRow(prompt + committed, len(prompt), [3], block, kept)])
    expected, old = (exact(network, prompt + canvas, len(prompt), [3]) for canvas in (committed, empty))
    assert 1e-4 < (encoded - expected).norm() < 0.5 * (old - expected).norm()
    lead = 1 if network.shifted else 0
    assert kept.tokens - before == lead + (CANVAS if mode == "prefix" else BLOCK)


def test_a_new_block_and_age_refresh(network: TransformerModel) -> None:
    prompt = network.codec.encode_prompt(TEXTS[0])
    ids, kept, spent = prompt + [network.spec.mask_id] * CANVAS, KVCache("dual", refresh=3), []
    for block in ((0, 8), (0, 8), (0, 8), (0, 8), (8, 16), (8, 16)):
        before = kept.tokens
        network.encode_reusing([ReuseRow(ids, len(prompt), [block[0]], block, kept)])
        spent.append(kept.tokens - before == len(ids))
    assert spent == [True, False, False, True, True, False]
