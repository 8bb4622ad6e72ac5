"""The verified loop of one request: judge a finished canvas, then repair it, try otherwise, or stop.

A text that satisfies the predicate ends it. Otherwise, while rounds and budget last, positions of the best text so far
are reopened and decoded again under guidance; after the last round the next attempt decodes from the start. The best
text by graded score is kept, the earliest among equals. Its caller runs the jobs that it asks for.

At temperature 0 no round is run twice: one that could only repeat a text ends its attempt's repair, and attempts that
repeat earlier ones are not begun where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from decoding.constraints.base.constraint import Constraint
from decoding.models.protocol import ModelSpec, TextCodec
from decoding.policy.repair import LOOKING, Repair
from decoding.records.events import ReopenEvent
from decoding.records.trace import Resumption, Trace
from decoding.repair.keyword_argmax import open_positions, probe, probe_job
from decoding.repair.length_repair import shift_tail
from decoding.repair.passes import DecodedText, finished
from decoding.repair.rounds import anchor_of, reopened_job, rollout_jobs
from decoding.repair.selectors import RANKINGS, Key, RepairContext, by_rollouts, candidates_of, first
from decoding.request.canvas import CanvasState
from decoding.request.job import Anchor, Job
from decoding.request.row_estimates import round_rows


@dataclass(frozen=True, slots=True)
class Continue:
    """Decode `job`; `event` goes to those who follow the request."""

    job: Job
    event: ReopenEvent


@dataclass(frozen=True, slots=True)
class RunRollouts:
    """Run `jobs` beside each other, then give their states to `RepairLoop.measured`."""

    jobs: tuple[Job, ...]


Action = Continue | RunRollouts | None
"""What a request does next; None: it is done."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A repair round that has not begun to decode."""

    context: RepairContext
    repair: Repair
    anchor: Anchor
    number: int


class RepairLoop:
    """One request's passes. Not thread-safe: one caller at a time."""

    def __init__(self, job: Job, spec: ModelSpec, codec: TextCodec) -> None:
        if job.predicate is None:
            raise ValueError("a job with repair or attempts needs a predicate")
        self.job = job
        self.passes: list[DecodedText] = []
        self._predicate: Constraint = job.predicate
        self._codec = codec
        self._mask_id, self._end_ids = spec.mask_id, spec.end_ids
        self._attempt = self._round = 0
        self._own = job.attempt(0)
        self._reopened: tuple[int, ...] = ()
        self._source: DecodedText | None = None
        self._tried: dict[int, frozenset[int]] = {}
        self._open: _Open | None = None
        self._asked: list[Job] = []
        """Rounds without noise, by what determines them."""

    @property
    def best(self) -> DecodedText:
        """The best pass so far, the earliest among equals."""
        return max(self.passes, key=lambda decoded: decoded.rank)

    def first_of(self, decoded: DecodedText) -> DecodedText:
        """The first pass of the attempt that `decoded` belongs to."""
        return next(other for other in self.passes if other.attempt == decoded.attempt)

    def trace(self) -> Trace:
        """The steps of all passes in order."""
        start = self.passes[0].state.trace
        whole = Trace(start.start, start.end_id, start.start_step)
        for one in self.passes:
            if one is not self.passes[0]:
                canvas = one.state.trace.start
                whole.resumed.append(Resumption(len(whole.steps), canvas, one.reopened, one.attempt, one.round))
            whole.steps += one.state.trace.steps
        return whole

    def judge(self, state: CanvasState) -> Action:
        """Take in the finished canvas of the last job; what to do next, None where the request is done."""
        self.passes.append(
            finished(
                state,
                self._predicate,
                self._codec,
                attempt=self._attempt,
                number=self._round,
                reopened=self._reopened,
                before=self._source,
            )
        )
        if self.passes[-1].satisfied:
            return None
        return self._repair() or self._next_attempt()

    def measured(self, states: Sequence[CanvasState]) -> Continue | None:
        """Choose by the rollouts that `RunRollouts` asked for, in its order; what to do next, as `judge` says it."""
        opening = self._open
        if opening is None:
            raise RuntimeError("no rollouts were asked for")
        context = opening.context
        if opening.repair.selector == LOOKING:
            keys = probe(context, states[0].trace)
        else:
            texts = [state.job.text(self._codec, state.content()) for state in states]
            keys = by_rollouts(context.candidates, texts, self._predicate)
        return self._reopen(opening, keys) or self._next_attempt()

    def _spent(self) -> int:
        return self.passes[-1].state.ledger.total

    def _affords(self, rows: int) -> bool:
        budget = self.job.policy.budget_rows
        return budget is None or self._spent() + rows <= budget

    def _repair(self) -> Action:
        repair = self._own.policy.repair
        if repair is None or self._round >= repair.max_rounds or not self._affords(round_rows(self._own, repair)):
            return None
        decoded = max((p for p in self.passes if p.attempt == self._attempt), key=lambda p: p.rank)
        anchor = anchor_of(decoded, repair, self._mask_id)
        candidates = candidates_of(anchor.canvas, self._mask_id, self._end_ids, self._own.template)
        number = self._round + 1
        noise = replace(self.job.noise, purpose="select", rollout=self._attempt).with_round(number)
        context = RepairContext(decoded, candidates, self._predicate, self._codec, noise)
        opening = _Open(context, repair, anchor, number)
        if repair.selector == "restart" or not candidates:
            return self._reopen(opening, {})
        if jobs := self._selection(opening):
            self._open = opening
            return RunRollouts(jobs)
        if repair.selector == "constraint_aware" and anchor.step == self._own.steps and self._own.template is None:
            moved = shift_tail(context, repair.reopen, number, self._mask_id, self._end_ids[0])
            if moved is not None:
                return self._begin(opening, moved.positions, replace(anchor, canvas=moved.canvas), moved.decoded)
        return self._reopen(opening, RANKINGS[repair.selector](context))

    def _selection(self, opening: _Open) -> tuple[Job, ...]:
        """What the selector has to run before it can choose."""
        repair, anchor, number = opening.repair, opening.anchor, opening.number
        if repair.rollout_count:
            candidates = opening.context.candidates
            return tuple(rollout_jobs(self._own, repair, anchor, candidates, number, self._mask_id))
        if repair.selector == LOOKING and (positions := open_positions(opening.context)):
            return (probe_job(self._own, anchor, positions, number, self._mask_id),)
        return ()

    def _reopen(self, opening: _Open, keys: dict[int, Key]) -> Continue | None:
        decoded = opening.context.decoded
        tried = self._tried.get(id(decoded), frozenset())
        positions = first(keys, opening.repair.reopen, tried)
        if opening.repair.selector == "restart":
            positions = tuple(at for at, token in enumerate(opening.anchor.canvas) if token == self._mask_id)
        self._tried[id(decoded)] = tried | set(positions)
        return self._begin(opening, positions, opening.anchor, decoded)

    def _begin(
        self, opening: _Open, positions: tuple[int, ...], anchor: Anchor, source: DecodedText
    ) -> Continue | None:
        job = reopened_job(self._own, anchor, positions, opening.number, self._mask_id)
        if not job.draws:
            bare = replace(job, noise=self.job.noise)
            if bare in self._asked:
                return None
            self._asked.append(bare)
        self._round, self._reopened, self._open, self._source = opening.number, positions, None, source
        return self._go_on(job)

    def _next_attempt(self) -> Continue | None:
        index = self._attempt + 1
        if index >= self.job.attempt_count:
            return None
        job, attempts = self.job.attempt(index), self.job.attempts
        if not job.draws and all(attempt in attempts[:index] for attempt in attempts[index:]):
            return None
        if not self._affords(job.first_pass_rows):
            return None
        self._attempt, self._round, self._own = index, 0, job
        self._reopened, self._source = (), None
        return self._go_on(job)

    def _go_on(self, job: Job) -> Continue:
        canvas = job.start or job.empty(self._mask_id)
        return Continue(job, ReopenEvent(self._attempt, self._round, self._reopened, canvas, self.best.score))
