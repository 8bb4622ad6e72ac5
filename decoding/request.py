"""One canvas being decoded: where it stands, what it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from decoding import noise as noises
from decoding.gating import Decision, GateView
from decoding.job import Job, regime_of
from decoding.kernel import Candidates
from decoding.ledger import Ledger
from decoding.models.protocol import Kept
from decoding.order import CONFIDENCE_KINDS, GUIDED_ORDERS, RANDOM, Order, commit_count, ranked, reached_first
from decoding.schedule import BlockSchedule, check_blocks
from decoding.trace import Phase, StepStats, Summary, Trace


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What one step did to a canvas."""

    step: int
    phase: Phase
    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]
    filled: tuple[int, ...]


class MaskLeftError(RuntimeError):
    """A canvas would have ended with MASK in it: an invariant is broken."""


class CanvasState:
    """A job on its way. The engine asks for `rows`, `scored`, runs the step, and calls `apply`."""

    def __init__(self, job: Job, mask_id: int, end_ids: tuple[int, ...]) -> None:
        self.job = job
        self.mask_id = mask_id
        self.end_ids = end_ids
        start = (mask_id,) * job.gen_length if job.start is None else job.start
        self.tokens: NDArray[np.int64] = np.array(start, dtype=np.int64)
        self.step = job.start_step
        self.phase: Phase = "base" if job.starts_base else "guided"
        self.handoff_step: int | None = job.start_step if job.starts_base else None
        self.handoff_masked: int | None = int(self.masked.sum()) if job.starts_base else None
        self.decision: Decision | None = None
        self.fallback_reason: str | None = None
        self.ledger = Ledger()
        self.kept = self._kept()
        self.trace = Trace(tuple(start), end_ids[0], job.start_step)
        self.round = 0
        self.schedule = self._schedule()
        self._confidence = np.full(job.gen_length, np.nan)
        self._entropy = np.full(job.gen_length, np.nan)

    def _schedule(self) -> BlockSchedule:
        """The schedule at the start: where it stood, or as the step says."""
        job = self.job
        if job.start_place is None:
            return BlockSchedule.starting_at(self.step, self.masked, job.steps, job.block_length, wide=self.wide)
        blocks = check_blocks(job.gen_length, job.steps, job.block_length)
        schedule = BlockSchedule(job.gen_length, job.steps, blocks, *job.start_place)
        if self.wide:
            schedule.skip_empty(self.masked)
        return schedule

    def _kept(self) -> Kept | None:
        """A base tail's empty store of keys and values, where the policy reuses them."""
        mode = self.job.policy.tail_reuse if self.phase == "base" else None
        return None if mode is None else Kept(mode, self.job.policy.tail_refresh)

    @property
    def approximate(self) -> bool:
        """Whether a step reused keys and values, so that the text may differ from exact decoding's."""
        return self.kept is not None and self.kept.reused > 0

    @property
    def masked(self) -> NDArray[np.bool_]:
        """[L] bool: positions still undecided."""
        return np.asarray(self.tokens == self.mask_id)

    @property
    def rows(self) -> int:
        """Rows of the next step: 2 guided, 1 base."""
        return 2 if self.phase == "guided" else 1

    @property
    def width(self) -> int:
        """Positions a step that the policy asks for in this phase (1: as scheduled)."""
        return self.job.policy.guided_width if self.phase == "guided" else self.job.policy.tail_width

    @property
    def wide(self) -> bool:
        return self.width > 1

    @property
    def finished(self) -> bool:
        return self.schedule.finished or (self.wide and not self.masked.any())

    def scored(self) -> NDArray[np.int64]:
        """Positions whose logits the step needs: the masked ones of the active region, or all of them for gates and
        traces.
        """
        masked = self.masked
        if not self._scores_everything:
            masked = masked.copy()
            masked[self.schedule.stop :] = False
        return np.flatnonzero(masked)

    @property
    def _scores_everything(self) -> bool:
        return self.job.record != "commits" or (
            self.phase == "guided" and self.job.gate.checkpoints(self.job.steps) is None
        )

    def uniforms(self, positions: NDArray[np.int64], stream: int = noises.SAMPLE) -> NDArray[np.float64]:
        """One uniform for each of `positions`."""
        return (
            self.job.noise.with_round(self.round).uniforms(self.step, self.job.gen_length, stream)[positions]
            if positions.size
            else np.empty(0)
        )

    def hand_off(self) -> None:
        """End guidance before the next step, for good."""
        if self.phase == "guided":
            self.phase = "base"
            self.handoff_step = self.step
            self.handoff_masked = int(self.masked.sum())
            self.kept = self._kept()
            if self.wide:
                self.schedule.skip_empty(self.masked)

    def order(self) -> Order:
        """The commit order of this step."""
        name = self.job.policy.order
        if self.phase == "guided" and name in GUIDED_ORDERS:
            return GUIDED_ORDERS[name]
        return RANDOM if name == "random" else CONFIDENCE_KINDS[self.job.sampling.confidence]

    def view(self, model_hash: str) -> GateView:
        """What a gate may see: this run's earlier steps only."""
        return GateView(
            regime=regime_of(self.job, model_hash),
            step=self.step,
            prompt_length=len(self.job.prompt_ids),
            masked=int(self.masked.sum()),
            history=tuple(self.trace.steps),
            constraint=self.job.constraint,
        )

    def apply(self, found: Candidates, positions: NDArray[np.int64]) -> StepEvent:
        """Commit the quota among `found`, the candidates at `positions` (as `scored` gave them), and move on."""
        before = self.masked
        eligible = np.flatnonzero(positions < self.schedule.stop)
        chosen = self._choose(found, positions, eligible)
        at, tokens = positions[chosen], found.token.numpy()[chosen]
        if (tokens == self.mask_id).any():
            raise MaskLeftError("MASK was sampled; suppressed ids must have probability 0")
        self.tokens[at] = tokens
        self._confidence[at] = found.probability.double().numpy()[chosen]
        self._entropy[at] = found.entropy.double().numpy()[chosen]
        filled = self._fill_after_end(at, tokens)
        self.trace.steps.append(self._stats(found, positions, chosen, filled, int(before.sum())))
        if filled.size:
            committed = before.copy()
            committed[at] = False
            self.schedule.advance(committed, wide=self.wide)
            if not self.schedule.finished:
                self.schedule.shrink(committed, self.masked)
        else:
            self.schedule.advance(self.masked, wide=self.wide)
        last = self.trace.steps[-1]
        event = StepEvent(self.step, self.phase, last.positions, last.tokens, last.confidence, last.filled)
        self.step += 1
        if self.finished and self.masked.any():
            raise MaskLeftError(
                f"{int(self.masked.sum())} of {self.job.gen_length} positions are still MASK after step {self.step}"
            )
        return event

    def _choose(
        self, found: Candidates, positions: NDArray[np.int64], eligible: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Indices into `positions` that this step commits, in order of position."""
        scheduled = self.schedule.quota(int(eligible.size))
        quota = self.schedule.quota(int(eligible.size), self.width)
        if eligible.size == 0 or quota == 0:
            return eligible[:0]
        order = self.order()
        uniforms = torch.from_numpy(self.uniforms(positions, noises.ORDER)) if order.needs_noise else found.probability
        scores = order.score(found, uniforms).double()
        if self.job.sampling.defer_eos:
            scores = scores.masked_fill(torch.isin(found.token, torch.tensor(self.end_ids)), float("-inf"))
        within = ranked(scores[eligible], torch.from_numpy(positions[eligible])).numpy()
        sequence: NDArray[np.int64] = eligible[within]
        threshold = self.job.policy.tail_threshold if self.phase == "base" else None
        if threshold is not None:
            sequence = sequence[reached_first(found.probability[sequence], threshold).numpy()]
        count = commit_count(quota, int(eligible.size), found.probability[sequence], threshold, max(1, scheduled))
        committed: NDArray[np.int64] = np.sort(sequence[:count])
        return committed

    def _fill_after_end(self, at: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = at[np.isin(tokens, self.end_ids)]
        if not self.job.sampling.eos_fill or ends.size == 0:
            return ends[:0]
        masked = np.flatnonzero(self.masked)
        filled: NDArray[np.int64] = masked[masked > ends.min()]
        self.tokens[filled] = self.end_ids[0]
        return filled

    def _stats(
        self,
        found: Candidates,
        positions: NDArray[np.int64],
        chosen: NDArray[np.int64],
        filled: NDArray[np.int64],
        masked: int,
    ) -> StepStats:
        at = positions[chosen]
        left = np.ones(positions.size, dtype=bool)
        left[chosen] = False
        left &= ~np.isin(positions, filled)
        guided = self.phase == "guided"
        variation = found.total_variation.double().numpy()
        stats: dict[str, object] = {
            "total_variation_left": float(variation[left].max()) if guided and left.any() else None
        }
        if self.job.record != "commits":
            stats |= {
                "masked_confidence": Summary.of(found.probability.double().numpy()),
                "masked_entropy": Summary.of(found.entropy.double().numpy()),
                "committed_confidence": Summary.of(self._confidence[~np.isnan(self._confidence)]),
                "committed_entropy": Summary.of(self._entropy[~np.isnan(self._entropy)]),
            }
            if guided and positions.size:
                stats |= {
                    "kl": Summary.of(found.kl.double().numpy()),
                    "total_variation_max": float(variation.max()),
                    "total_variation_mean": float(variation.mean()),
                    "boost_max": float(found.boost.max()),
                }
        if self.job.record == "fill":
            stats |= {"argmax_positions": tuple(positions.tolist()), "argmax_tokens": tuple(found.argmax.tolist())}
        return StepStats(
            step=self.step,
            phase=self.phase,
            round=self.round,
            positions=tuple(at.tolist()),
            tokens=tuple(self.tokens[at].tolist()),
            confidence=tuple(self._confidence[at].tolist()),
            masked=masked,
            filled=tuple(filled.tolist()),
            place=self.schedule.place,
            **stats,  # type: ignore[arg-type]
        )

    def settle(self) -> None:
        """Let go of what was kept; book the rows that `eos_fill` made unnecessary, against the same run without it."""
        if self.kept is not None:
            self.kept.layers = None
        if self.job.sampling.eos_fill and self.job.start is None:
            self.ledger.skipped_by_eos = self._skipped_rows()

    def _skipped_rows(self) -> int:
        """Rows of the same run without the fill, less those run.

        An adaptive tail would have gone on at the pace that it had: an estimate, where everything else is exact.
        """
        base = [stats for stats in self.trace.steps if stats.phase == "base"]
        if self.job.policy.tail_threshold is None or not base:
            own = self.ledger.of(purpose=self.job.purpose)
            return max(0, self.job.planned_rows(self.handoff_step) - own)
        pace = max(1.0, sum(len(stats.positions) for stats in base) / len(base))
        return math.ceil(sum(len(stats.filled) for stats in self.trace.steps) / pace)

    def content(self) -> list[int]:
        """Token ids up to the first end-of-text."""
        ends = np.flatnonzero(np.isin(self.tokens, self.end_ids))
        return list(self.tokens[: ends[0]].tolist()) if ends.size else list(self.tokens.tolist())
