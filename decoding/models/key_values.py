"""Key-value reuse for the base tail: fewer tokens a step, approximate, opt-in.

A masked diffusion model attends both ways, so every commit changes the keys and values of every position from the
second block of the network on. Reuse ignores that between refreshes (Fast-dLLM, arXiv 2505.22618): a refresh runs the
whole row and keeps its keys and values; the steps after it run a window of the row against what was kept. The windows,
for the canvas block being decoded: `prefix` recomputes from the block to the end of the row, `dual` the block alone.
With a refresh before every step nothing is reused and the result is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from decoding.models.adapter import TransformerModel
from decoding.models.transformer_blocks import Block, Rotation, Transformer

Mode = Literal["prefix", "dual"]
Layers = list[tuple[Tensor, Tensor]]
"""Rotated keys and values of every block, [B, kv_heads, S, head_dim]."""


@dataclass(slots=True)
class Kept:
    """What one request keeps between steps; make one at its handoff, drop it with the request."""

    layers: Layers | None = None
    block: tuple[int, int] = (0, 0)
    age: int = 0
    """Steps that have used `layers`, the refresh itself included."""
    tokens: int = 0
    """Tokens run so far, by refreshes and windows: the true cost, which the ledger's rows do not show."""


@dataclass(frozen=True, slots=True)
class ReuseRow:
    """A base row of one step; `block` (start, stop) and `scored`, which lies within it, are relative to the canvas."""

    ids: list[int]
    prompt_length: int
    scored: list[int]
    block: tuple[int, int]
    kept: Kept


@dataclass(frozen=True, slots=True)
class KeyValueReuse:
    """Features of base rows with reuse; a refresh at a new block and after `refresh` steps (1: always, exact)."""

    model: TransformerModel
    mode: Mode = "prefix"
    refresh: int = 8

    def features(self, rows: Sequence[ReuseRow]) -> list[Tensor]:
        """Features [len(scored), D] of each row, ready for `model.project`. Batches refreshes and windows apart."""
        stale = [row for row in rows if self._stale(row)]
        fresh = [row for row in rows if not self._stale(row)]
        found: dict[int, Tensor] = {}
        for group, run in ((stale, self._refresh), (fresh, self._window)):
            if group:
                hidden, starts = run(group)
                for index, row in enumerate(group):
                    slots = torch.tensor(
                        [max(0, self._slot(row, i)) - starts[index] for i in row.scored], dtype=torch.long
                    )
                    found[id(row)] = hidden[index, slots.to(hidden.device)]
                    row.kept.age += 1
        return [found[id(row)] for row in rows]

    def _stale(self, row: ReuseRow) -> bool:
        return row.kept.layers is None or row.kept.block != row.block or row.kept.age >= self.refresh

    def _slot(self, row: ReuseRow, position: int) -> int:
        """Where the network predicts canvas position `position`."""
        return row.prompt_length + position - (1 if self.model.shifted else 0)

    def _span(self, row: ReuseRow) -> tuple[int, int]:
        stop = len(row.ids) if self.mode == "prefix" else row.prompt_length + row.block[1]
        return max(0, self._slot(row, row.block[0])), stop

    def _refresh(self, rows: list[ReuseRow]) -> tuple[Tensor, list[int]]:
        lengths = torch.tensor([len(row.ids) for row in rows], device=self.model.device)
        ids = _padded([row.ids for row in rows], self.model.spec.mask_id, self.model.device)
        valid = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
        kept: Layers = []

        def step(block: Block, normed: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
            kept.append(block.keys_values(normed, rotation))
            return kept[-1]

        positions = torch.arange(ids.shape[1], device=ids.device)[None].expand_as(ids)
        hidden = _run(self.model.network, ids, positions, valid, step)
        for index, row in enumerate(rows):
            own = slice(index, index + 1)
            length = len(row.ids)
            row.kept.layers = [(k[own, :, :length].clone(), v[own, :, :length].clone()) for k, v in kept]
            row.kept.block, row.kept.age = row.block, 0
            row.kept.tokens += length
        return hidden, [0] * len(rows)

    def _window(self, rows: list[ReuseRow]) -> tuple[Tensor, list[int]]:
        device, spans = self.model.device, [self._span(row) for row in rows]
        width, longest = max(stop - start for start, stop in spans), max(len(row.ids) for row in rows)
        ids = _padded(
            [row.ids[start:stop] for row, (start, stop) in zip(rows, spans, strict=True)],
            self.model.spec.mask_id,
            device,
        )
        # Columns beyond a row's own window write to a spare slot at the end, which no query may see.
        positions = torch.tensor(
            [[start + i if start + i < stop else longest for i in range(width)] for start, stop in spans]
        )
        lengths = torch.tensor([len(row.ids) for row in rows], device=device)
        valid = torch.arange(longest + 1, device=device)[None] < lengths[:, None]
        positions = positions.to(device)
        layers = [row.kept.layers or [] for row in rows]
        number = iter(range(len(layers[0])))

        def step(block: Block, normed: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
            layer = next(number)
            fresh = block.keys_values(normed, rotation)
            at = positions.to(normed.device)[:, None, :, None].expand(fresh[0].shape)
            keys, values = (
                _stacked([own[layer][part] for own in layers], longest + 1).scatter(2, at, fresh[part])
                for part in (0, 1)
            )
            return keys, values

        hidden = _run(self.model.network, ids, positions, valid, step)
        for row, (start, stop) in zip(rows, spans, strict=True):
            row.kept.tokens += stop - start
        return hidden, [start for start, _ in spans]


def _run(
    network: Transformer,
    ids: Tensor,
    positions: Tensor,
    valid: Tensor,
    step: Callable[[Block, Tensor, Rotation], tuple[Tensor, Tensor]],
) -> Tensor:
    """ids, positions [B, W]; valid [B, S] marks the keys; `step` gives a block's keys and values [B, kv, S, *]."""
    home, shape = ids.device, network.shape
    x: Tensor = network.embedding(ids)
    table = Rotation.of(int(positions.max()) + 1, shape.head_dim, shape.rope_theta, home)
    rotation = Rotation(table.cos[positions][:, None], table.sin[positions][:, None])
    mask = valid[:, None, None, :]
    for block in network.blocks:
        assert isinstance(block, Block)
        device = next(block.parameters()).device
        if device != x.device:
            x, rotation, mask = x.to(device), rotation.to(device), mask.to(device)
        normed = block.attention_norm(x)
        keys, values = step(block, normed, rotation)
        x = block.finish(x, block.attend(normed, keys, values, rotation, mask))
    return x.to(home)


def _padded(rows: list[list[int]], fill: int, device: torch.device) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows], device=device)


def _stacked(parts: list[Tensor], length: int) -> Tensor:
    """[1, kv, S_i, d] each -> [B, kv, length, d], zeros on the right (NaN there would leak through a mask)."""
    first = parts[0]
    found = first.new_zeros(len(parts), first.shape[1], length, first.shape[3])
    for index, part in enumerate(parts):
        found[index, :, : part.shape[2]] = part[0]
    return found
