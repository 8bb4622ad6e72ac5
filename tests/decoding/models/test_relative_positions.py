"""`bert_mini` with relative positions: buckets, padding, windows of rows, and training's own attention."""

from __future__ import annotations

import torch

from decoding.models.bert_mini.network import BertMini, BertMiniConfig, distance_buckets

CONFIG = BertMiniConfig(40, 32, 2, 4, 64, 64, 16, relative_buckets=32)


def network() -> BertMini:
    torch.manual_seed(0)
    return BertMini(CONFIG).eval()


def rows(length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.arange(length).remainder(40)[None]
    return ids, torch.arange(length)[None], torch.zeros_like(ids)


def test_buckets_are_exact_near_and_grow_with_the_distance() -> None:
    buckets = distance_buckets(torch.tensor([0, -1, -7, -8, -127, -400, 1, 7, 400]), 32)
    assert buckets.tolist() == [0, 1, 7, 8, 15, 15, 17, 23, 31]


def test_padding_changes_nothing() -> None:
    model, (ids, positions, segments) = network(), rows(12)
    wide = [torch.nn.functional.pad(part, (0, 4)) for part in (ids, positions, segments)]
    valid = torch.arange(16)[None] < 12
    with torch.inference_mode():
        alone = model.encode(ids, positions, segments, None)
        padded = model.encode(*wide, valid)[:12]
    torch.testing.assert_close(alone, padded, rtol=1e-5, atol=1e-5)


def test_order_matters_to_equal_positions() -> None:
    """Without learned positions the columns alone tell two orders apart."""
    model, (ids, positions, segments) = network(), rows(6)
    with torch.inference_mode():
        model.relative_bias.weight.normal_()  # type: ignore[union-attr]
        one = model.encode(ids, positions * 0, segments, None)
        other = model.encode(ids.flip(1), positions * 0, segments, None).flip(0)
    assert not torch.allclose(one, other, atol=1e-3)


def test_trainings_attention_equals_the_fused_one() -> None:
    model, (ids, positions, segments) = network(), rows(10)
    valid = torch.arange(10)[None] < 9
    with torch.no_grad():
        fused = model.encode(ids, positions, segments, valid)
        plain = model.train().encode(ids, positions, segments, valid)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


def test_attention_is_what_the_last_layers_mix_by() -> None:
    """Each position's shares add up to 1, and mixing the values by a layer's shares of one head gives what it gives."""
    one_head = BertMini(BertMiniConfig(40, 32, 2, 1, 64, 64, 16, relative_buckets=32)).eval()
    ids, positions, segments = rows(10)
    inputs: list[torch.Tensor] = []
    with torch.inference_mode():
        features = one_head.encode(ids, positions, segments, None, inputs=inputs)
        both = one_head.attention([x[0] for x in inputs])
        last = one_head.attention([inputs[-1][0]])
        values = one_head.layers[-1].qkv(inputs[-1][0])[:, -32:]
    torch.testing.assert_close(both.sum(-1), torch.ones(10))
    torch.testing.assert_close(last @ values, features[:, 32:], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(both, last)
