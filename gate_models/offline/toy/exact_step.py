"""The exact law of one denoising step of the enumerable model, by going through every joint draw of masked positions.

Which position is committed depends on all draws when the order looks at the sampled tokens (or at guided
probabilities). The next state is then *not* a tilt of the base kernel by the committed token's delta. Guidance tilts
the joint draw V = (v_j) over the masked positions, with statistic sum_j delta_j(v_j) / temperature; the kernel is the
image of that draw under the commit rule. The rules are stated here anew, in plain tensor algebra, and the tests compare
them with the decoder's.

A pair (state, draw) is a filled canvas with the subset of its positions that is masked: (2A)^L pairs in all.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import torch
from torch import Tensor

from gate_models.offline.toy.model import PROMPT, ToyCanvas, ToyTables

Phase = Literal["guided", "base"]
GUIDED_ORDERS: Final = frozenset({"guidance_boost", "boost_confidence", "conditional"})
CONFIDENCE_ORDERS: Final = frozenset({"probability", "margin", "neg_entropy", "random", "position"})
SMALLEST_GAP: Final = 1e-9
ROUNDED: Final = 5e-6
"""Nats that the decoder's divergence, of probabilities in millionths, may be off by."""
MENDED: Final = 0.1
"""Share of the best token's probability below which mending draws a token anew."""
STEADY: Final = 0.015
"""Divergence in nats below which the rule `stable` takes a prediction for unchanged."""


class TieError(ValueError):
    """Two candidates of a state have the same score: the kernel would rest on rounding."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the toy is decoded; names and meanings are the decoder's.

    One order is for the theory alone: `position` (left to right, the fixed order, a confidence kind).
    """

    steps: int
    scale: float = 1.5
    order: str = "confidence"
    confidence: str = "probability"
    temperature: float = 1.0
    top_p: float = 1.0
    plausibility: float | None = None
    guided_width: int = 1
    tail_width: int = 1
    tail_threshold: float | None = None
    tail_rule: str = "top_k"
    growing: bool = False
    """Whether the tail's counts grow (`tail_schedule`)."""
    mend: int | None = None
    """Passes that mend the finished tail."""
    block_length: int | None = None
    suppress_end: bool = False
    defer_end: bool = False

    def __post_init__(self) -> None:
        if self.order not in GUIDED_ORDERS | {"confidence", "random"} or self.confidence not in CONFIDENCE_ORDERS:
            raise ValueError(f"unknown order {self.order!r} or confidence {self.confidence!r}")
        if self.block_length is not None and max(self.guided_width, self.tail_width) > 1:
            raise ValueError("blocks are exact for serial phases only: a wide phase leaves a block early")

    @property
    def remembers(self) -> bool:
        """Whether a base step depends on the steps of the tail before it."""
        return self.growing or self.tail_rule == "stable"

    @property
    def paced_by_tokens(self) -> bool:
        """Whether the tokens say how many positions a base step commits."""
        return self.tail_threshold is not None or self.tail_rule != "top_k"

    def order_in(self, phase: Phase) -> str:
        """The commit order of a phase: base steps know no guided order."""
        if phase == "guided" and self.order in GUIDED_ORDERS:
            return self.order
        return "random" if self.order == "random" else self.confidence


@dataclass(frozen=True, slots=True)
class Distributions:
    """Probabilities [states, L, A] of each position's token; rows of committed positions are there and unused."""

    drawn: Tensor
    """What tokens are sampled from: tempered, within the nucleus."""
    plain: Tensor
    """Untempered, guided where the phase is: what confidence is measured on."""
    conditional: Tensor
    """Untempered, without guidance."""


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Keep the shortest run of most probable tokens whose mass reaches top_p, and renormalise."""
    values, order = probabilities.sort(dim=-1, descending=True, stable=True)
    reached_before = values.cumsum(-1) - values >= top_p
    reached_before[..., 0] = False
    kept = values.masked_fill(reached_before, 0.0)
    out = torch.zeros_like(probabilities).scatter(-1, order, kept)
    return out / out.sum(-1, keepdim=True)


def distributions(tables: ToyTables, rules: Rules, scale: Tensor | None) -> Distributions:
    """Distributions of a step at guidance scale `scale` (a scalar tensor, so that autograd reaches it); None: base."""
    conditional = tables.branch(conditional=True)
    logits = conditional
    if scale is not None:
        logits = conditional + scale * (conditional - tables.branch(conditional=False))
    if rules.suppress_end and tables.end_is_token:
        conditional, logits = conditional.clone(), logits.clone()
        conditional[..., tables.end_id] = logits[..., tables.end_id] = -math.inf
    if scale is not None and rules.plausibility is not None:
        alone = conditional.softmax(-1)
        implausible = alone < rules.plausibility * alone.amax(-1, keepdim=True)
        logits = logits.masked_fill(implausible, -math.inf)
    plain = logits.softmax(-1)
    if rules.temperature == 0.0:
        drawn = torch.nn.functional.one_hot(logits.argmax(-1), tables.canvas.alphabet).to(plain.dtype)
    else:
        drawn = (logits / rules.temperature).softmax(-1)
    if rules.top_p < 1.0:
        drawn = nucleus(drawn, rules.top_p)
    return Distributions(drawn, plain, conditional.softmax(-1))


@dataclass(frozen=True, slots=True)
class Step:
    """What the schedule asks of one step: per number of candidates the quota, and where the active region ends."""

    quotas: tuple[int, ...]
    """[L + 1]: quota by number of candidates."""
    stop: int


@dataclass(frozen=True, slots=True)
class PairFacts:
    """One (state, draw) pair, as the tail rules see it; lists are [L]."""

    best: list[int]
    """Positions that may be committed, best first."""
    tokens: list[int]
    hidden: list[bool]
    probability: list[float]
    entropy: list[float]
    end: int | None
    unchanged: list[int]
    """Steps in a row that have left the prediction unchanged."""
    attention: list[list[float]]
    """[L][L], of an even spread; empty where the model tells none."""

    def unrepeated(self, positions: list[int]) -> list[int]:
        """Those whose token is not within two positions already, in the canvas or at an earlier one of them."""
        written = [None if hidden else token for token, hidden in zip(self.tokens, self.hidden, strict=True)]
        kept = []
        for i in positions:
            near = [written[k] for k in range(len(written)) if abs(k - i) <= 2]
            if self.tokens[i] == self.end or self.tokens[i] not in near:
                written[i] = self.tokens[i]
                kept.append(i)
        return kept


def going_together(rule: str, facts: PairFacts) -> list[int]:
    """Positions that a tail rule takes together, stated anew for the tests."""
    if rule == "spaced":
        gap = max(2, sum(facts.hidden) * 8 // len(facts.hidden))
        far: list[int] = []
        for i in facts.best:
            if (
                min((abs(i - k) for k in far if not facts.tokens[i] == facts.tokens[k] == facts.end), default=gap)
                >= gap
            ):
                far.append(i)
        return far
    if rule == "best_of_run":
        leaders = set()
        for hidden, run in itertools.groupby(range(len(facts.hidden)), key=lambda i: facts.hidden[i]):
            inside = [i for i in run if i in facts.best]
            if hidden and inside:
                leaders.add(min(inside, key=facts.best.index))
        return [i for i in facts.best if facts.probability[i] >= (0.4 if i in leaders else 0.9)]
    if rule == "entropy_bound":
        rising = sorted(facts.best, key=lambda i: (facts.entropy[i], i))
        return [i for n, i in enumerate(rising) if sum(facts.entropy[k] for k in rising[:n]) <= 0.3]
    if rule == "factor":
        falling = sorted(facts.best, key=lambda i: (-facts.probability[i], i))
        fitting = [n for n, i in enumerate(falling, 1) if (n + 1) * (1.0 - facts.probability[i]) < 1.0]
        return falling[: max(fitting, default=0)]
    if rule == "conflict":
        free: list[int] = []
        for i in facts.best:
            others = [k for k in free if not facts.tokens[i] == facts.tokens[k] == facts.end]
            if max(((facts.attention[i][k] + facts.attention[k][i]) / 2 for k in others), default=0.0) <= 1.0:
                free.append(i)
        return free
    if rule == "stable":
        return [i for i in facts.best if facts.probability[i] >= 0.6 and facts.unchanged[i] >= 2]
    raise ValueError(f"no tail rule is called {rule!r}")


class StepLaw:
    """Transition kernels of one set of tables under one set of rules."""

    def __init__(self, tables: ToyTables, rules: Rules) -> None:
        self.tables, self.rules, self.canvas = tables, rules, tables.canvas
        canvas = tables.canvas
        fills = torch.cartesian_prod(*[torch.arange(canvas.alphabet)] * canvas.length).reshape(-1, canvas.length)
        subsets = torch.cartesian_prod(*[torch.tensor([False, True])] * canvas.length).reshape(-1, canvas.length)
        self.tokens = fills.repeat_interleave(len(subsets), 0)
        """[D, L]: the draw where masked, the committed token elsewhere."""
        self.masked = subsets.repeat(len(fills), 1)
        self.state = torch.where(self.masked, canvas.alphabet, self.tokens) @ canvas.powers

    def at_tokens(self, table: Tensor) -> Tensor:
        """[D, L]: entries of a table [states, L, A] at each pair's tokens."""
        entries: Tensor = table[self.state[:, None], torch.arange(self.canvas.length), self.tokens]
        return entries

    def draw_probability(self, probabilities: Distributions) -> Tensor:
        """[D]: probability of the joint draw given the state."""
        return torch.where(self.masked, self.at_tokens(probabilities.drawn), 1.0).prod(-1)

    @cached_property
    def masks(self) -> Tensor:
        """[states]: number of masked positions."""
        return (self.canvas.digits == self.canvas.alphabet).sum(-1)

    def scores(self, name: str, probabilities: Distributions) -> Iterator[tuple[float, Tensor]]:
        """(weight, scores [D, L]) of a commit order; a random order is the mean over all permutations."""
        zero = torch.zeros(self.tokens.shape, dtype=torch.float64)
        if name == "random":
            orders = list(itertools.permutations(range(self.canvas.length)))
            yield from ((1.0 / len(orders), zero + torch.tensor(order)) for order in orders)
        elif name == "position":
            yield 1.0, zero
        else:
            scores = self._scores(name, probabilities).detach()
            if self.rules.defer_end:
                scores = scores.masked_fill(self.tokens == self.tables.end_id, -math.inf)
            self._refuse_ties(scores, probabilities)
            yield 1.0, scores

    def _scores(self, name: str, probabilities: Distributions) -> Tensor:
        probability, conditional = self.at_tokens(probabilities.plain), self.at_tokens(probabilities.conditional)
        if name in {"margin", "neg_entropy"}:
            plain = probabilities.plain
            top = plain.topk(2, -1).values
            by_state = top[..., 0] - top[..., 1] if name == "margin" else torch.xlogy(plain, plain).sum(-1)
            return by_state[self.state]
        return {
            "probability": probability,
            "conditional": conditional,
            "guidance_boost": probability - conditional,
            "boost_confidence": (probability - conditional) * probability,
        }[name]

    def _refuse_ties(self, scores: Tensor, probabilities: Distributions) -> None:
        possible = self.draw_probability(probabilities) > 0
        marked = scores.masked_fill(~self.masked, math.inf)[possible].sort(-1).values
        gaps = (marked[:, 1:] - marked[:, :-1])[marked[:, 1:].isfinite() & marked[:, :-1].isfinite()]
        if gaps.numel() and float(gaps.min()) < SMALLEST_GAP:
            raise TieError(f"scores tie within {float(gaps.min()):.1e}; take another seed or scale")

    def committed(
        self,
        step: Step,
        scores: Tensor,
        probabilities: Distributions,
        threshold: float | None,
        rule: str = "top_k",
        history: Sequence[int] = (),
    ) -> Tensor:
        """[D, L] bool: positions that the step commits. Highest score first, ties to the left.

        `history` holds the states at the tail's steps so far.
        """
        eligible = self.masked & (torch.arange(self.canvas.length) < step.stop)
        if rule != "top_k":
            unchanged = self.unchanged(probabilities, history)
            return self._together(rule, step, scores, probabilities, threshold or 0.0, eligible, unchanged)
        by_score = scores.argsort(dim=-1, descending=True, stable=True)
        last = (~eligible).gather(-1, by_score).to(torch.int8).argsort(dim=-1, stable=True)
        sequence = by_score.gather(-1, last)
        count = torch.tensor(step.quotas)[eligible.sum(-1)]
        if threshold is not None:
            confident = eligible & (self.at_tokens(probabilities.plain) >= threshold)
            sequence = sequence.gather(
                -1, (~confident).gather(-1, sequence).to(torch.int8).argsort(dim=-1, stable=True)
            )
            count = torch.minimum(count, confident.sum(-1).clamp(min=1))
        return eligible & (sequence.argsort(-1) < count[:, None])

    def unchanged(self, probabilities: Distributions, history: Sequence[int]) -> Tensor:
        """[states, L]: how many of the last two steps have left a prediction unchanged, up to the first that has not,
        if the tail stood at `history` before the state.
        """
        plain = probabilities.plain.detach()
        count = torch.zeros(plain.shape[:2], dtype=torch.long)
        running = torch.ones(plain.shape[:2], dtype=torch.bool)
        now = plain
        for state in reversed(history[-2:]):
            before = plain[state].expand_as(plain)
            moved = (torch.xlogy(now, now) - torch.xlogy(now, before)).nan_to_num().sum(-1)
            if bool((((moved - STEADY).abs() < ROUNDED)[self.state] & self.masked).any()):
                raise TieError("a divergence lies at the bound itself; take another seed")
            running = running & (moved < STEADY) & (now.argmax(-1) == before.argmax(-1))
            count, now = count + running, before
        return count

    def _together(
        self,
        rule: str,
        step: Step,
        scores: Tensor,
        probabilities: Distributions,
        threshold: float,
        eligible: Tensor,
        unchanged: Tensor,
    ) -> Tensor:
        """[D, L] bool: what a tail rule commits, one position at least and the quota at most."""
        plain = self.at_tokens(probabilities.plain)
        entropy = torch.special.entr(probabilities.plain).sum(-1)[self.state]
        end = self.tables.end_id if self.tables.end_is_token else None
        out, paid = torch.zeros_like(eligible), self.tables.attention
        for pair in range(len(out)):
            open_ = [i for i in range(self.canvas.length) if eligible[pair, i]]
            if not open_:
                continue
            facts = PairFacts(
                best=sorted(open_, key=lambda i: (-float(scores[pair, i]), i)),
                tokens=self.tokens[pair].tolist(),
                hidden=self.masked[pair].tolist(),
                probability=plain[pair].tolist(),
                entropy=entropy[pair].tolist(),
                end=end,
                unchanged=unchanged[self.state[pair]].tolist(),
                attention=[]
                if paid is None
                else (paid[self.state[pair]] * (self.canvas.length + len(PROMPT))).tolist(),
            )
            wanted = [i for i in going_together(rule, facts) if facts.probability[i] >= threshold]
            chosen = facts.unrepeated(wanted)[: step.quotas[len(open_)]]
            out[pair, chosen or (facts.unrepeated(facts.best) or facts.best)[:1]] = True
        return out

    def images(
        self,
        step: Step,
        phase: Phase,
        probabilities: Distributions,
        order: str | None = None,
        history: Sequence[int] = (),
    ) -> Iterator[tuple[float, Tensor]]:
        """(weight, next state [D]) of every pair, once a permutation for random order."""
        threshold, rule = (self.rules.tail_threshold, self.rules.tail_rule) if phase == "base" else (None, "top_k")
        for weight, scores in self.scores(order or self.rules.order_in(phase), probabilities):
            left = self.masked & ~self.committed(step, scores, probabilities, threshold, rule, history)
            yield weight, torch.where(left, self.canvas.alphabet, self.tokens) @ self.canvas.powers

    def kernel(
        self,
        step: Step,
        phase: Phase,
        scale: Tensor | float | None = None,
        order: str | None = None,
        statistic: Tensor | None = None,
    ) -> Tensor:
        """K(x' | x) [states, states], rows x; differentiable in `scale` (default: the rules').

        With `statistic` [D], a function of the joint draw, the entries are E[statistic 1(X' = x') | x] instead. `order`
        overrides the rules' commit order.
        """
        if phase == "guided":
            scale = torch.as_tensor(self.rules.scale if scale is None else scale, dtype=torch.float64)
        probabilities = distributions(self.tables, self.rules, scale if isinstance(scale, Tensor) else None)
        mass = self.draw_probability(probabilities)
        if statistic is not None:
            mass = mass * statistic
        out = torch.zeros(self.canvas.states, self.canvas.states, dtype=torch.float64)
        for weight, image in self.images(step, phase, probabilities, order):
            out = out.index_put((self.state, image), weight * mass, accumulate=True)
        return out

    def row(self, step: Step, state: int, history: Sequence[int]) -> Tensor:
        """[states]: law of the state after a base step from `state`, the tail having stood at `history` before."""
        here = self.at(state)
        mass = here.draw_probability(self.base)
        out = torch.zeros(self.canvas.states, dtype=torch.float64)
        for weight, image in here.images(step, "base", self.base, history=history):
            out.index_add_(0, image, weight * mass)
        return out

    def mended(self, state: int, opened: Sequence[int], number: int, passes: int) -> Tensor:
        """[states]: law of the text after pass `number` over a finished one, whose tail began with `opened` masked."""
        canvas, tables = self.canvas, self.tables
        text = [int(digit) for digit in canvas.digits[state]]
        end = text.index(tables.end_id) if tables.end_is_token and tables.end_id in text else canvas.length
        looked = [p for i, p in enumerate(opened) if i % passes == number and p <= end]
        hidden = canvas.number(None if p in looked else token for p, token in enumerate(text))
        out = torch.zeros(canvas.states, dtype=torch.float64)
        out[state] = 1.0
        for p in looked:
            beside = [text[k] for k in (p - 1, p + 1) if 0 <= k < canvas.length]
            lonely = text[p] not in beside or (tables.end_is_token and text[p] == tables.end_id)
            plain = self.base.plain[hidden, p]
            if lonely and plain[text[p]] >= MENDED * plain.max():
                continue
            moved = torch.zeros_like(out)
            for token in range(canvas.alphabet):
                to = (torch.arange(canvas.states) + (token - canvas.digits[:, p]) * canvas.powers[p])[out > 0]
                moved.index_add_(0, to, out[out > 0] * self.base.drawn[hidden, p, token])
            out = moved
        return out

    def at(self, state: int) -> StepLaw:
        """This law on the draws of one state alone, each joint draw of its masked positions once."""
        here, pairs = copy.copy(self), self.state == state
        here.tokens, here.masked, here.state = self.tokens[pairs], self.masked[pairs], self.state[pairs]
        return here

    @cached_property
    def base(self) -> Distributions:
        """Distributions of a base step."""
        return distributions(self.tables, self.rules, None)

    def joint_delta(self) -> Tensor:
        """[D]: sum over masked positions of (c - u) at the drawn tokens / temperature: what Eq. 6 tilts by."""
        delta = self.tables.branch(conditional=True) - self.tables.branch(conditional=False)
        return torch.where(self.masked, self.at_tokens(delta), 0.0).sum(-1) / self.rules.temperature


def growing_counts(length: int, entered: int | None, width: int) -> list[int]:
    """[L + 1]: what a growing tail commits by number of masks left, if it began with `entered` (None: with those)."""
    counts = [0]
    for masks in range(1, length + 1):
        begun = max(masks, entered or masks)
        steps = math.ceil(begun / width)
        decided = [max(begun * i**2 // steps**2 + j - i for i in range(j + 1)) for j in range(1, steps + 1)]
        counts.append(min(number for number in decided if number > begun - masks) - (begun - masks))
    return counts


def schedule(
    rules: Rules, canvas: ToyCanvas, step: int, width: int, *, growing: bool = False, entered: int | None = None
) -> Step:
    """Masks left over steps left, rounded up, from one block to the next; a wide phase commits at least `width`.

    A `growing` tail commits that many on average; it began with `entered` masks (None: it begins with this step).
    """
    length, block = canvas.length, rules.block_length or canvas.length
    per_block = rules.steps * block // length
    steps_left = per_block - step % per_block
    widths = growing_counts(length, entered, width) if growing else [width if width > 1 else 0] * (length + 1)
    quotas = tuple(min(masks, max(math.ceil(masks / steps_left), widths[masks])) for masks in range(length + 1))
    return Step(quotas, min(length, (step // per_block + 1) * block))
