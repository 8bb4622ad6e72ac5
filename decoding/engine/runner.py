"""Runs the model on the rows of one step, and samples a candidate token for every masked position.

Conditional and unconditional rows of all requests share forwards. In invariant mode every matrix product has a shape
that depends on the bucket alone (a request's own length rounded up), so a row's numbers do not depend on what shares
the batch: bit-equal on the same CPU type, build, dtype and thread count. In default mode shapes follow the load; logits
may differ in the last bits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.models.protocol import AttendingModel, DenoisingModel, KVCache, ReusableModel, ReuseRow
from decoding.records.ledger import BRANCHES, Branch
from decoding.request.canvas import CanvasState
from decoding.sampling.kernel import Candidates, PositionSettings, candidates
from decoding.sampling.stability import LEADERS

INVARIANT_TILE = 8
INVARIANT_CHUNK = 64


@dataclass(frozen=True, slots=True)
class StepResult:
    """Candidates of one request at its scored positions; `finite` is False where the model gave NaN or infinity."""

    positions: NDArray[np.int64]
    candidates: Candidates
    finite: bool
    attention: Tensor | None = None
    """[M, M] between the scored positions, in shares of an even spread over the row, where the request's rule asks."""


@dataclass(slots=True)
class _Row:
    request: CanvasState
    branch: Branch
    ids: list[int]
    prompt_length: int
    scored: NDArray[np.int64]
    kept: KVCache | None
    """The request's own as of the start of the step: one that is cancelled meanwhile lets go of it. None where the
    step runs whole rows.
    """
    features: Tensor = field(default_factory=lambda: torch.empty(0))
    attention: Tensor | None = None

    def reusing(self) -> ReuseRow:
        """As a base row of a tail that reuses keys and values."""
        assert self.kept is not None  # see `Runner.run`
        scored, schedule = self.scored.tolist(), self.request.schedule
        block = (min([schedule.start, *scored[:1]]), schedule.stop)
        return ReuseRow(self.ids, self.prompt_length, scored, block, self.kept)


@dataclass(slots=True)
class RunnerCounts:
    """What the runner ran since it was made."""

    rows: dict[Branch, int] = field(default_factory=lambda: dict.fromkeys(BRANCHES, 0))
    padding_rows: int = 0
    forwards: int = 0
    model_seconds: float = 0.0
    """Time in the model itself (encoder and output head). On an accelerator, whose work is asynchronous, all of `run`.
    """

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Count the time of the block as the model's."""
        began = time.perf_counter()
        yield
        self.model_seconds += time.perf_counter() - began


class Runner:
    """Runs one denoising step of many requests on a model.

    `tile` is the largest number of rows in a forward, `bucket` the multiple to which row lengths are rounded up,
    `chunk` how many positions pass the output head at once (it bounds memory: chunk x vocabulary).
    """

    def __init__(
        self, model: DenoisingModel, *, invariant: bool = False, tile: int = 64, bucket: int = 8, chunk: int = 64
    ) -> None:
        self.model = model
        self.invariant = invariant
        self.tile = INVARIANT_TILE if invariant else tile
        self.chunk = INVARIANT_CHUNK if invariant else chunk
        self.bucket = bucket
        self.counts = RunnerCounts()
        spec = model.spec
        self._suppressed = torch.tensor(spec.suppressed_ids, device=model.device)
        self._end_ids = torch.tensor(spec.end_ids, device=model.device)

    @torch.inference_mode()
    def run(self, requests: Sequence[CanvasState]) -> list[StepResult]:
        """Candidates for each of `requests`; charges every row that was run to its request's ledger."""
        began, in_model = time.perf_counter(), self.counts.model_seconds
        pairs = [self._rows(request) for request in requests]
        rows = [row for pair in pairs for row in pair]
        for tile in self._tiles([row for row in rows if row.kept is None]):
            self._encode(tile)
        reusing = [row for row in rows if row.kept is not None]
        for start in range(0, len(reusing), self.tile):
            self._encode_reusing(reusing[start : start + self.tile])
        results: dict[int, StepResult] = {}
        for branches in (1, 2):
            results |= self._candidates([pair for pair in pairs if len(pair) == branches])
        if self.model.device.type != "cpu":
            self.counts.model_seconds = in_model + time.perf_counter() - began
        return [results[id(request)] for request in requests]

    def _rows(self, request: CanvasState) -> list[_Row]:
        """The request's conditional row and, while it is guided, its unconditional one."""
        prompt, canvas = list(request.job.prompt_ids), request.tokens.tolist()
        scored = request.scored()
        kept = None if request.mending else request.kept
        rows = [_Row(request, "conditional", prompt + canvas, len(prompt), scored, kept)]
        if request.phase == "guided":
            negative = request.job.negative_ids
            hidden = self.model.spec.unconditional_prompt(prompt) if negative is None else list(negative)
            rows.append(_Row(request, "unconditional", hidden + canvas, len(hidden), scored, kept))
        return rows

    def _padded(self, row: _Row) -> int:
        return -(-len(row.ids) // self.bucket) * self.bucket

    def _tiles(self, rows: list[_Row]) -> Iterator[list[_Row]]:
        buckets: dict[int, list[_Row]] = {}
        for row in rows:
            buckets.setdefault(self._padded(row), []).append(row)
        for length in sorted(buckets):
            for start in range(0, len(buckets[length]), self.tile):
                yield buckets[length][start : start + self.tile]

    def _encode(self, tile: list[_Row]) -> None:
        size, length = (self.tile if self.invariant else len(tile)), self._padded(tile[0])
        ids = torch.full((size, length), self.model.spec.mask_id, dtype=torch.long)
        for index, row in enumerate(tile):
            ids[index, : len(row.ids)] = torch.tensor(row.ids)
        dummy = size - len(tile)
        prompts = torch.tensor([row.prompt_length for row in tile] + [0] * dummy)
        lengths = torch.tensor([len(row.ids) for row in tile] + [length] * dummy)
        device = self.model.device
        placed = ids.to(device), prompts.to(device), lengths.to(device)
        attending = [index for index, row in enumerate(tile) if row.request.attends]
        with self.counts.in_model():
            features = self._features(placed, tile, attending)
        for index, row in enumerate(tile):
            at = index * length + row.prompt_length + torch.from_numpy(row.scored)
            row.features = features[at.to(device)]
            self._charge(row, len(row.ids))
        self.counts.padding_rows += dummy
        self.counts.forwards += 1

    def _features(self, placed: tuple[Tensor, Tensor, Tensor], tile: list[_Row], attending: list[int]) -> Tensor:
        """What the encoder makes of a tile, and the attention of those rows whose request asks for it."""
        if not attending:
            return self.model.encode(*placed, always_mask=self.invariant)
        model = cast(AttendingModel, self.model)  # jobs for other models are refused
        features, attention = model.encode_attending(*placed, attending, always_mask=self.invariant)
        for index, paid in zip(attending, attention, strict=True):
            row = tile[index]
            between = paid.cpu()[np.ix_(row.scored, row.scored)]
            row.attention = (between + between.T) * (len(row.ids) / 2)
        return features

    def _encode_reusing(self, tile: list[_Row]) -> None:
        given = [row.reusing() for row in tile]
        before = [row.kept.tokens for row in given]
        with self.counts.in_model():
            encoded = cast(ReusableModel, self.model).encode_reusing(given)  # jobs for other models are refused
        for row, features, reuse, earlier in zip(tile, encoded, given, before, strict=True):
            row.features = features
            self._charge(row, reuse.kept.tokens - earlier)
        self.counts.forwards += 1

    def _charge(self, row: _Row, tokens: int) -> None:
        request = row.request
        request.ledger.charge(row.branch, request.purpose(row.branch), tokens=tokens)
        self.counts.rows[row.branch] += 1

    def _candidates(self, pairs: list[list[_Row]]) -> dict[int, StepResult]:
        """Head, tilt, sample and statistics for the scored positions of requests in one phase, chunk by chunk."""
        if not pairs:
            return {}
        settings = _position_settings([pair[0] for pair in pairs], self.model.device)
        leaders = LEADERS if any(pair[0].request.remembers for pair in pairs) else 0
        plain, *others = (torch.cat([row.features for row in branch]) for branch in zip(*pairs, strict=True))
        hidden = others[0] if others else None
        parts = []
        for start in range(0, max(1, plain.shape[0]), self.chunk):
            part = slice(start, start + self.chunk)
            unguided = None if hidden is None else hidden[part]
            parts.append(self._chunk(plain[part], unguided, settings.slice(part), leaders))
        joined = Candidates.concatenate(parts).to_cpu()
        results, offset = {}, 0
        for row, *_ in pairs:
            scored = joined.slice(offset, offset + row.scored.size)
            offset += row.scored.size
            finite = all(bool(torch.isfinite(v).all()) for v in (scored.entropy, scored.probability, scored.kl))
            results[id(row.request)] = StepResult(row.scored, scored, finite, row.attention)
        return results

    def _chunk(self, plain: Tensor, hidden: Tensor | None, settings: PositionSettings, leaders: int) -> Candidates:
        count = plain.shape[0]
        if self.invariant and count < self.chunk:
            missing = self.chunk - count
            plain = torch.cat([plain, plain.new_zeros(missing, *plain.shape[1:])])
            hidden = None if hidden is None else torch.cat([hidden, hidden.new_zeros(missing, *hidden.shape[1:])])
            settings = settings.padded(missing)
        with self.counts.in_model():
            conditional = self.model.project(plain)
            unconditional = None if hidden is None else self.model.project(hidden)
        step = candidates(
            conditional,
            unconditional,
            settings,
            suppressed=self._suppressed,
            blocked_ids=self._end_ids,
            leaders=leaders,
        )
        return step.slice(0, count)


def _position_settings(rows: list[_Row], device: torch.device) -> PositionSettings:
    """The settings of each scored position of `rows`."""
    counts = torch.tensor([row.scored.size for row in rows])

    def spread(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts).to(device)

    jobs = [row.request.job for row in rows]
    uniforms = np.concatenate([row.request.uniforms(row.scored) for row in rows])
    standing = np.concatenate([row.request.standing[row.scored] for row in rows])
    return PositionSettings(
        scale=spread([job.policy.guidance_scale for job in jobs]),
        uniforms=torch.from_numpy(uniforms).to(device),
        temperature=spread([row.request.temperature for row in rows]),
        top_p=spread([job.sampling.top_p for job in jobs]),
        blocked=spread([float(job.sampling.suppress_eos) for job in jobs]) > 0,
        plausibility=spread([job.policy.plausibility or 0.0 for job in jobs]),
        standing=torch.from_numpy(standing).to(device),
    )
