"""The sizing page: its table is the script's, and the script's counts are the network's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from decoding.models.transformer.blocks import Shape, Transformer
from gate_models.offline.bench.sizing import DREAM_7B, H100, LLADA_8B, Card, block_weights, estimate, row_flops, table

PAGE = Path(__file__).parents[3] / "docs" / "sizing.md"


def test_the_page_holds_the_table() -> None:
    assert table(LLADA_8B, H100) in PAGE.read_text(encoding="utf-8")


def test_weights_are_the_published_ones() -> None:
    for shape, gigabytes in ((LLADA_8B, 16.031162368), (DREAM_7B, 15.231233024)):
        size = estimate(shape, 2, 256, scored=64, card=H100)
        assert size.weights_gb == pytest.approx(gigabytes, rel=1e-4)  # norms and biases are left out
        assert size.forward_ms == max(size.compute_ms, size.read_ms)
        assert estimate(shape, 2, 256, scored=64, card=H100, weights="int8").weights_gb < 0.6 * size.weights_gb


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_operations_equal_torchs_own_count(kv_heads: int) -> None:
    shape = Shape(96, 32, 3, 4, kv_heads, 56, 1e-5, 1e4, kv_heads == 2)
    network, length, scored = Transformer(shape), 24, 10
    counter = FlopCounterMode(display=False)
    with counter, torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):  # the fused CPU kernel is not counted
        hidden = network.encode(torch.zeros(1, length, dtype=torch.long), None)
        network.project(hidden[0, :scored])
    assert counter.get_total_flops() == row_flops(shape, length, scored)
    assert block_weights(shape) == sum(p.numel() for p in network.blocks.parameters() if p.ndim == 2)


def test_bounds_scale_as_they_should() -> None:
    one, two = (estimate(LLADA_8B, rows, 256, scored=64, card=H100) for rows in (1, 2))
    assert two.compute_ms == pytest.approx(2 * one.compute_ms)
    assert two.read_ms == one.read_ms
    slow = estimate(LLADA_8B, 1, 256, scored=64, card=Card(H100.teraflops / 2, H100.terabytes_per_second, H100.share))
    assert slow.compute_ms == pytest.approx(2 * one.compute_ms)
