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
from typing import Protocol

import torch
from torch import Tensor

from decoding.models.protocol import Layers, ReuseRow


@dataclass(frozen=True, slots=True)
class Window:
    """Parts of rows that are run: `ids` and their `columns` in the row [B, W]; padding has a column beyond every row.

    `prompt_lengths` and `lengths` [B] are those of the whole rows; `keys` is S, the number of columns to attend to.
    """

    ids: Tensor
    columns: Tensor
    prompt_lengths: Tensor
    lengths: Tensor
    keys: int

    @property
    def valid(self) -> Tensor:
        """[B, S] bool: the keys that count."""
        return torch.arange(self.keys, device=self.ids.device)[None] < self.lengths[:, None]


Attended = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Called in every layer, in order, with the window's own keys and values [B, heads, W, head_dim]: what to attend to,
[B, heads, S, head_dim] each."""


class WindowedEncoder(Protocol):
    """The part of a model that differs between architectures."""

    def __call__(self, window: Window, attended: Attended) -> Tensor:
        """Features [B, W, *] at the window's columns."""
        ...


@dataclass(frozen=True, slots=True)
class KeyValueReuse:
    """`ReusableModel.encode_reusing` over an encoder of windows.

    `lead`: by how many columns before a token the network predicts it (Dream: 1).
    """

    encoder: WindowedEncoder
    fill_id: int
    device: torch.device
    lead: int = 0

    def features(self, rows: Sequence[ReuseRow]) -> list[Tensor]:
        """Features [len(scored), *] of each row. Batches refreshes and windows apart."""
        stale = [row for row in rows if _stale(row)]
        fresh = [row for row in rows if not _stale(row)]
        features: dict[int, Tensor] = {}
        for group, run in ((stale, self._refresh), (fresh, self._window)):
            if group:
                hidden, starts = run(group)
                for index, row in enumerate(group):
                    slots = [max(0, self._slot(row, i)) - starts[index] for i in row.scored]
                    features[id(row)] = hidden[index, torch.tensor(slots, dtype=torch.long, device=hidden.device)]
                    row.kept.age += 1
        return [features[id(row)] for row in rows]

    def _slot(self, row: ReuseRow, position: int) -> int:
        """Where the network predicts canvas position `position`."""
        return row.prompt_length + position - self.lead

    def _span(self, row: ReuseRow) -> tuple[int, int]:
        stop = len(row.ids) if row.kept.mode == "prefix" else row.prompt_length + row.block[1]
        return max(0, self._slot(row, row.block[0])), stop

    def _refresh(self, rows: list[ReuseRow]) -> tuple[Tensor, list[int]]:
        whole = [(0, len(row.ids)) for row in rows]
        kept: Layers = []

        def attended(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            kept.append((keys, values))
            return keys, values

        hidden = self.encoder(self._cut(rows, whole, spare=0), attended)
        for index, row in enumerate(rows):
            own, length = slice(index, index + 1), len(row.ids)
            row.kept.layers = [(k[own, :, :length].clone(), v[own, :, :length].clone()) for k, v in kept]
            row.kept.block, row.kept.age = row.block, 0
            row.kept.tokens += length
        return hidden, [0] * len(rows)

    def _window(self, rows: list[ReuseRow]) -> tuple[Tensor, list[int]]:
        spans = [self._span(row) for row in rows]
        window = self._cut(rows, spans, spare=1)
        layers = [row.kept.layers or [] for row in rows]
        number = iter(range(len(layers[0])))

        def attended(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            layer = next(number)
            at = window.columns.to(keys.device)[:, None, :, None].expand(keys.shape)
            old = [_stacked([own[layer][part] for own in layers], window.keys) for part in (0, 1)]
            return old[0].scatter(2, at, keys), old[1].scatter(2, at, values)

        hidden = self.encoder(window, attended)
        for row, (start, stop) in zip(rows, spans, strict=True):
            row.kept.tokens += stop - start
            row.kept.reused += 1
        return hidden, [start for start, _ in spans]

    def _cut(self, rows: list[ReuseRow], spans: list[tuple[int, int]], *, spare: int) -> Window:
        """The columns `spans` (start, stop) of the rows; `spare` keys after the longest row take the padding's."""
        width, longest = max(stop - start for start, stop in spans), max(len(row.ids) for row in rows)
        ids, columns = [], []
        for row, (start, stop) in zip(rows, spans, strict=True):
            padding = width - (stop - start)
            ids.append(row.ids[start:stop] + [self.fill_id] * padding)
            columns.append([*range(start, stop), *[longest] * padding])
        return Window(
            ids=torch.tensor(ids).to(self.device),
            columns=torch.tensor(columns).to(self.device),
            prompt_lengths=torch.tensor([row.prompt_length for row in rows]).to(self.device),
            lengths=torch.tensor([len(row.ids) for row in rows]).to(self.device),
            keys=longest + spare,
        )


def _stale(row: ReuseRow) -> bool:
    return row.kept.layers is None or row.kept.block != row.block or row.kept.age >= row.kept.refresh


def _stacked(parts: list[Tensor], length: int) -> Tensor:
    """[1, heads, S_i, d] each -> [B, heads, length, d], zeros on the right (NaN there would leak through a mask)."""
    first = parts[0]
    padded = first.new_zeros(len(parts), first.shape[1], length, first.shape[3])
    for index, part in enumerate(parts):
        padded[index, :, : part.shape[2]] = part[0]
    return padded
