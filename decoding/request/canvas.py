"""One canvas being decoded: what is decided so far, which step comes next, and what the steps have cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.gates.protocol import Decision, GateView
from decoding.models.protocol import KVCache
from decoding.records.events import StepEvent
from decoding.records.ledger import Branch, Ledger, Purpose
from decoding.records.step_stats import drained_stats, summaries
from decoding.records.trace import Phase, StepStats, Trace
from decoding.request.job import Job, RecordLevel, regime_of
from decoding.request.row_estimates import skipped_rows
from decoding.sampling import noise as noises
from decoding.sampling.block_schedule import CONSTANT, BlockSchedule, check_blocks, growing_width
from decoding.sampling.commit_order import Order, step_order
from decoding.sampling.kernel import Candidates
from decoding.sampling.mending import NO_TOKEN, opened_in, standing
from decoding.sampling.selection import CommitLimits, Standing, in_margins, inside_words, select
from decoding.sampling.stability import NO_TAIL, TailState, leaders_of, remembered
from decoding.sampling.tail_rule import ATTENDING, REMEMBERING, TOP_K, Tail


class MaskLeftError(RuntimeError):
    """A canvas would have ended with MASK in it: an invariant is broken."""


class CanvasState:
    """A job on its way. The engine asks for `rows`, `scored`, runs the step, and calls `apply`."""

    def __init__(
        self,
        job: Job,
        mask_id: int,
        end_ids: tuple[int, ...],
        continuations: Collection[int] = frozenset(),
        ledger: Ledger | None = None,
        margins: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.job = job
        self.mask_id = mask_id
        self.end_ids = end_ids
        self.continuations = continuations
        self.margins = margins  # as `ModelSpec.text_margins`
        start = job.empty(mask_id) if job.start is None else job.start
        self.tokens: NDArray[np.int64] = np.array(start, dtype=np.int64)
        self.step = job.start_step
        self.phase: Phase = "base" if job.starts_base else "guided"
        self.handoff_step: int | None = job.start_step if job.starts_base else None
        self.handoff_masked: int | None = int(self.masked.sum()) if job.starts_base else None
        self.decision: Decision | None = None
        self.fallback_reason: str | None = None
        self.rechecking = False
        """Whether the next step is guided only to see whether guidance is still drained."""
        self.ledger = Ledger() if ledger is None else ledger  # shared by the canvases of one request
        self._spent_before = self.ledger.of(purpose=job.purpose)
        self.kept = self._kept()
        self.tail_state = self._new_tail() if job.starts_base and job.start_tail == NO_TAIL else job.start_tail
        self.mending: tuple[int, ...] = ()
        """Positions that the next step opens again, in a text that is finished."""
        self.standing: NDArray[np.int64] = np.full(job.gen_length, NO_TOKEN)
        """[L]: tokens that the next step keeps where they are still likely."""
        self.trace = Trace(tuple(start), end_ids[0], job.start_step)
        self.schedule = self._schedule()
        self._confidence = np.full(job.gen_length, np.nan)
        self._entropy = np.full(job.gen_length, np.nan)
        self._mend()

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

    def _kept(self) -> KVCache | None:
        """A base tail's empty store of keys and values, where the policy reuses them."""
        mode = self.job.policy.tail_reuse if self.phase == "base" else None
        return None if mode is None else KVCache(mode, self.job.policy.tail_refresh)

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
    def remembers(self) -> bool:
        """Whether the step's rule looks at earlier steps of the tail."""
        return self.phase == "base" and self.job.policy.tail_rule in REMEMBERING

    @property
    def attends(self) -> bool:
        """Whether the step's rule looks at the model's attention."""
        return self.phase == "base" and self.job.policy.tail_rule in ATTENDING and not self.mending

    @property
    def temperature(self) -> float:
        """Temperature of the next step."""
        return self.job.temperature(self.phase)

    @property
    def wide(self) -> bool:
        """Whether commits may be ahead of the schedule; the run then ends with the last mask."""
        return self.width > 1 or self.job.policy.boost_threshold is not None

    @property
    def finished(self) -> bool:
        return self._written and not self.mending

    @property
    def _written(self) -> bool:
        """Whether every position has been committed once."""
        return self.schedule.finished or ((self.wide or self.job.fill_step is not None) and not self.masked.any())

    def scored(self) -> NDArray[np.int64]:
        """Positions whose logits the step needs: the masked ones of the active region, or all of them for gates and
        traces.
        """
        masked = self.masked
        if not self._scores_everything and not self.mending:
            masked = masked.copy()
            masked[self.schedule.stop :] = False
        return np.flatnonzero(masked)

    @property
    def _record(self) -> RecordLevel:
        asked = self.job.record
        return asked if asked != "gate" else "fill" if self.phase == "guided" else "commits"

    @property
    def _scores_everything(self) -> bool:
        asked = self.phase == "guided" and self.job.gate.checkpoints(self.job.steps) is None
        return self._record != "commits" or asked or self.step == self.job.fill_step

    def uniforms(self, positions: NDArray[np.int64], stream: int = noises.SAMPLE) -> NDArray[np.float64]:
        """One uniform for each of `positions`."""
        if not positions.size:
            return np.empty(0)
        return self.job.noise.uniforms(self.step, self.job.gen_length, stream)[positions]

    def hand_off(self) -> None:
        """End guidance before the next step, for good."""
        if self.phase == "guided":
            self.phase = "base"
            self.handoff_step = self.step
            self.handoff_masked = int(self.masked.sum())
            self.kept = self._kept()
            self.tail_state = self._new_tail()
            if self.wide:
                self.schedule.skip_empty(self.masked)

    def _new_tail(self) -> TailState:
        """What a tail that begins now carries: it looks back on its own steps only."""
        if self.job.policy.tail_mend is None or self.job.fill_step is not None:
            return NO_TAIL
        return NO_TAIL._replace(opened=tuple(np.flatnonzero(self.masked).tolist()))

    def purpose(self, branch: Branch) -> Purpose:
        """What the next step's row of a branch is for."""
        if self.rechecking and branch == "unconditional":
            return "probe"
        asked = self.job.purpose
        return "repair" if self.mending and asked == "generate" else asked

    def _mend(self) -> None:
        """Where the text is written, open the positions of the next pass of mending again, if one is left."""
        self.mending = ()
        self.standing[:] = NO_TOKEN
        passes, tail = self.job.policy.tail_mend, self.tail_state
        if passes is None or self.phase == "guided" or not tail.opened or not self._written:
            return
        canvas, number = self.tokens.tolist(), tail.mended
        while number < passes and not self.mending:
            self.mending = opened_in(tail.opened, canvas, self.end_ids, number, passes)
            number += 1
        self.tail_state = tail._replace(mended=number - 1 if self.mending else number)
        at = list(self.mending)
        self.standing[at] = standing(canvas, at, self.end_ids)
        self.tokens[at] = self.mask_id

    def _recheck_due(self) -> bool:
        every, since = self.job.policy.gate.recheck, self.handoff_step
        if every is None or since is None or self.phase != "base" or self.job.starts_base or self.finished:
            return False
        return self.step - since >= every

    def order(self) -> Order:
        """The commit order of this step."""
        job = self.job
        return step_order(job.policy.order, job.sampling.confidence, guided=self.phase == "guided")

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

    def apply(
        self, candidates: Candidates, positions: NDArray[np.int64], attention: torch.Tensor | None = None
    ) -> StepEvent:
        """Commit the quota among `candidates`, the candidates at `positions` (as `scored` gave them), and move on.

        `attention` [M, M] is what they pay each other, where the step `attends`.
        """
        before = self.masked
        eligible = np.flatnonzero(positions < self.schedule.stop)
        filling, mending = self.step == self.job.fill_step, bool(self.mending)
        carried = self.tail_state
        whole = filling or mending
        chosen = np.arange(positions.size) if whole else self._choose(candidates, positions, eligible, attention)
        at, tokens = positions[chosen], (candidates.argmax if filling else candidates.token).numpy()[chosen]
        if (tokens == self.mask_id).any():
            raise MaskLeftError("MASK was sampled; suppressed ids must have probability 0")
        self.tokens[at] = tokens
        self._confidence[at] = candidates.probability.double().numpy()[chosen]
        self._entropy[at] = candidates.entropy.double().numpy()[chosen]
        filled = self._fill_after_end(at, tokens)
        left = self.masked
        seen = tuple(entry for entry in self.tail_state.seen if left[entry.position])
        self.tail_state = self.tail_state._replace(seen=seen)
        stats = self._stats(candidates, positions, chosen, filled, int(before.sum()))
        self.trace.steps.append(replace(stats, tail=carried))
        if mending:
            self.tail_state = self.tail_state._replace(mended=self.tail_state.mended + 1)
        else:
            self._advance(before, at, filled)
        last = self.trace.steps[-1]
        shown = last.positions, last.tokens, last.confidence, last.filled, last.masked, mending
        event = StepEvent(self.step, self.phase, *shown)
        self.step += 1
        self.rechecking = self._recheck_due()
        if self.rechecking:
            self.phase = "guided"
        if self.finished and self.masked.any():
            raise MaskLeftError(
                f"{int(self.masked.sum())} of {self.job.gen_length} positions are still MASK after step {self.step}"
            )
        self._mend()
        return event

    def _advance(self, before: NDArray[np.bool_], at: NDArray[np.int64], filled: NDArray[np.int64]) -> None:
        """Move the schedule on by a step that found `before` [L] masked, committed `at` and filled `filled`."""
        block = self.schedule.block
        if filled.size:
            committed = before.copy()
            committed[at] = False
            self.schedule.advance(committed, wide=self.wide)
            if not self.schedule.finished:
                self.schedule.shrink(committed, self.masked)
        else:
            self.schedule.advance(self.masked, wide=self.wide)
        if self.schedule.block != block:
            self.tail_state = self.tail_state._replace(entered=0)

    def _choose(
        self,
        candidates: Candidates,
        positions: NDArray[np.int64],
        eligible: NDArray[np.int64],
        attention: torch.Tensor | None,
    ) -> NDArray[np.int64]:
        """Indices into `positions` that this step commits, in order of position."""
        scheduled = self.schedule.quota(int(eligible.size))
        quota = self.schedule.quota(int(eligible.size), self._step_width(int(eligible.size)))
        if eligible.size == 0 or quota == 0:
            return eligible[:0]
        order, policy = self.order(), self.job.policy
        guided = self.phase == "guided"
        if self.remembers:
            self._remember(candidates, positions, eligible)
        confidence, boost = (None, policy.boost_threshold) if guided else (policy.tail_threshold, None)
        return select(
            candidates,
            positions,
            eligible,
            order=order,
            uniforms=self._order_uniforms(order, positions),
            limits=CommitLimits(
                scheduled, quota, confidence, boost, None if guided else self._tail(positions, attention)
            ),
            canvas=self.tokens,
            standing=self._standing(candidates.token, positions),
        )

    def _step_width(self, masks: int) -> int:
        """Positions that this step may commit where the schedule asks for fewer, of `masks` in the active region."""
        if self.phase == "guided" or self.job.policy.tail_schedule == CONSTANT or not masks:
            return self.width
        entered = self.tail_state.entered or masks
        self.tail_state = self.tail_state._replace(entered=entered)
        return growing_width(entered, masks, self.width)

    def _tail(self, positions: NDArray[np.int64], attention: torch.Tensor | None) -> Tail | None:
        policy = self.job.policy
        if policy.tail_rule == TOP_K:
            return None
        seen = {entry.position: entry.unchanged for entry in self.tail_state.seen}
        unchanged = tuple(seen.get(at, 0) for at in positions.tolist()) if self.remembers else ()
        paid = [] if attention is None else attention.tolist()
        return Tail(policy.tail_rule, self.mask_id, frozenset(self.end_ids), unchanged, paid)

    def _remember(self, candidates: Candidates, positions: NDArray[np.int64], eligible: NDArray[np.int64]) -> None:
        """Compare this step's predictions with those of the step before, and keep them for the next.

        Positions behind the active block count from when it reaches them: whether they are scored before depends on
        what a trace asks for.
        """
        pairs = zip(
            candidates.leader_ids[eligible].tolist(), candidates.leader_probability[eligible].tolist(), strict=True
        )
        leaders = [leaders_of(ids, probabilities) for ids, probabilities in pairs]
        seen = remembered(self.tail_state.seen, positions[eligible].tolist(), leaders)
        self.tail_state = self.tail_state._replace(seen=seen)

    def _order_uniforms(self, order: Order, positions: NDArray[np.int64]) -> torch.Tensor:
        """What a random order ranks by; nothing is drawn for the others."""
        drawn = self.uniforms(positions, noises.ORDER) if order.needs_noise else np.zeros(positions.size)
        return torch.from_numpy(drawn)

    def _standing(self, tokens: torch.Tensor, positions: NDArray[np.int64]) -> Standing:
        return Standing(
            started=self._started(tokens, positions),
            margin=in_margins(positions, tokens.numpy(), self.tokens.size, self.margins, self.end_ids),
            deferred=np.isin(tokens.numpy(), self.end_ids if self.job.sampling.defer_eos else ()),
        )

    def _started(self, tokens: torch.Tensor, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return inside_words(self.tokens, positions, tokens.numpy(), self.mask_id, self.continuations)

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
        candidates: Candidates,
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
        stats: dict[str, Any] = {}
        if guided:
            stats = drained_stats(candidates, left, self._started(candidates.argmax[left], positions[left]))
            stats["variation"] = tuple(candidates.total_variation.double().numpy()[chosen].tolist())
        if self._record != "commits":
            stats |= summaries(candidates, self._confidence, self._entropy, guided=guided)
        if self._record == "fill":
            stats |= {"argmax_positions": tuple(positions.tolist()), "argmax_tokens": tuple(candidates.argmax.tolist())}
        return StepStats(
            step=self.step,
            phase=self.phase,
            round=self.job.noise.round,
            positions=tuple(at.tolist()),
            tokens=tuple(self.tokens[at].tolist()),
            confidence=tuple(self._confidence[at].tolist()),
            masked=masked,
            filled=tuple(filled.tolist()),
            place=self.schedule.place,
            mending=bool(self.mending),
            **stats,
        )

    def settle(self) -> None:
        """Let go of what was kept; book the rows that `eos_fill` made unnecessary, against the same run without it."""
        if self.kept is not None:
            self.kept.layers = None
        if self.job.sampling.eos_fill and self.job.start is None:
            mended = sum(stats.mending for stats in self.trace.steps) if self.job.purpose != "generate" else 0
            spent = self.ledger.of(purpose=self.job.purpose) - self._spent_before - mended
            self.ledger.skipped_by_eos += skipped_rows(self.job, self.trace, spent, self.handoff_step)

    def content(self) -> list[int]:
        """Token ids up to the first end-of-text."""
        ends = np.flatnonzero(np.isin(self.tokens, self.end_ids))
        return list(self.tokens[: ends[0]].tolist()) if ends.size else list(self.tokens.tolist())
