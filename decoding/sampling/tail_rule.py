"""Tail rules: which masked positions a wide base step commits together.

The tokens of one step are drawn independently of one another. Two that depend on each other, such as neighbours, then
often do not fit. A rule is a plain function that takes the candidates best first and says which of them go together;
`@tail_rule` makes it one that a policy's `tail_rule` may name. Validation, the HTTP schema and policy names of commands
take the names from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

TOP_K: Final = "top_k"
GAP: Final = 8
"""Positions between two commits of `spaced` while the whole canvas is masked; it shrinks with the masks left, to 2."""
RUN_LOW: Final = 0.4
"""Probability that the best position of a run must reach under `best_of_run`."""
RUN_HIGH: Final = 0.9
"""Probability at which `best_of_run` takes any position."""
ENTROPY_BOUND: Final = 0.3
"""Nats of `entropy_bound` (gamma of arXiv 2505.24857)."""
FACTOR: Final = 1.0
"""Bound f of `factor` (arXiv 2505.22618)."""
STABLE: Final = 0.6
"""Probability that a position must reach under `stable`."""
STABLE_STEPS: Final = 2
"""Steps in a row that must have left its prediction unchanged (arXiv 2511.05664)."""
CONFLICT: Final = 1.0
"""Attention that two positions may pay each other under `conflict`, in shares of an even spread over the row."""
NEAR: Final = 2
"""Positions within which a token may not stand twice."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The rule of a request's tail, and the ids that it must know."""

    rule: str
    mask_id: int
    end_ids: frozenset[int]
    unchanged: tuple[int, ...] = ()
    """[M]: steps in a row that have left each candidate's prediction unchanged, for rules that remember."""
    attention: list[list[float]] = field(default_factory=list)
    """[M, M]: attention between candidates, for rules that look at it."""


@dataclass(frozen=True, slots=True)
class TailStep:
    """What a rule sees of one base step: M candidates, and the canvas [L] before the step."""

    sequence: list[int]
    """Indices of the candidates that may be committed, best first."""
    positions: list[int]
    """[M]: where each candidate stands in the canvas, rising."""
    tokens: list[int]
    """[M]: what was drawn there."""
    probability: list[float]
    """[M]: probability of that token."""
    entropy: list[float]
    """[M]: entropy of its distribution, nats."""
    canvas: list[int]
    """[L]: tokens, `mask_id` where undecided."""
    mask_id: int
    end_ids: frozenset[int]
    threshold: float = 0.0
    """Adaptive tail: the least probability of what the schedule does not need."""
    unchanged: tuple[int, ...] = ()
    """[M]: steps in a row that have left each candidate's prediction unchanged; empty unless the rule remembers."""
    attention: list[list[float]] = field(default_factory=list)
    """[M, M]: what candidates pay each other, the mean of both directions, in shares of an even spread over the row;
    empty unless the rule attends.
    """

    @property
    def masked(self) -> int:
        """Undecided positions of the canvas."""
        return self.canvas.count(self.mask_id)


Rule = Callable[[TailStep], list[int]]
"""Step -> the indices that go together, best first; the caller cuts them to the tail's width."""
TAIL_RULES: Final[dict[str, Rule]] = {}
REMEMBERING: Final[set[str]] = set()
"""Rules that look at earlier steps of the tail (`decoding.sampling.stability`)."""


ATTENDING: Final[set[str]] = set()
"""Rules that look at the model's attention (`decoding.models.protocol.AttendingModel`)."""


def tail_rule(rule: Rule) -> Rule:
    """Register a rule under its function's name."""
    TAIL_RULES[rule.__name__] = rule
    return rule


def remembering(rule: Rule) -> Rule:
    """Mark a rule as one that reads `TailStep.unchanged`."""
    REMEMBERING.add(rule.__name__)
    return rule


def attending(rule: Rule) -> Rule:
    """Mark a rule as one that reads `TailStep.attention`."""
    ATTENDING.add(rule.__name__)
    return rule


@tail_rule
def top_k(step: TailStep) -> list[int]:
    """The best candidates, wherever they stand: the paper's tail."""
    return step.sequence


@tail_rule
def spaced(step: TailStep) -> list[int]:
    """The best candidates that keep a distance, wide at first and never less than 2; ends of text need none."""
    gap = max(2, step.masked * GAP // len(step.canvas))
    chosen: list[int] = []
    for index in step.sequence:
        at, ends = step.positions[index], step.tokens[index] in step.end_ids
        crowd = (i for i in chosen if not (ends and step.tokens[i] in step.end_ids))
        if all(abs(at - step.positions[i]) >= gap for i in crowd):
            chosen.append(index)
    return chosen


@tail_rule
def best_of_run(step: TailStep) -> list[int]:
    """The best candidate of every run of masked positions where it is likely enough, and every very likely one."""
    runs = run_numbers(step.canvas, step.mask_id)
    seen: set[int] = set()
    chosen = []
    for index in step.sequence:
        run = runs[step.positions[index]]
        if step.probability[index] >= (RUN_HIGH if run in seen else RUN_LOW):
            chosen.append(index)
        seen.add(run)
    return chosen


@tail_rule
def entropy_bound(step: TailStep) -> list[int]:
    """Candidates of rising entropy, as long as all entropies but the largest add up to little."""
    chosen, total = [], 0.0
    for index in sorted(step.sequence, key=lambda i: (step.entropy[i], step.positions[i])):
        if total > ENTROPY_BOUND:  # all that were chosen before, this one being the largest
            break
        chosen.append(index)
        total += step.entropy[index]
    return chosen


@tail_rule
def factor(step: TailStep) -> list[int]:
    """The n most probable candidates for the largest n with (n + 1)(1 - p_n) below a bound."""
    by_probability = sorted(step.sequence, key=lambda i: (-step.probability[i], step.positions[i]))
    count = 0
    for n, index in enumerate(by_probability, 1):
        if (n + 1) * (1.0 - step.probability[index]) < FACTOR:
            count = n
    return by_probability[:count]


@remembering
@tail_rule
def stable(step: TailStep) -> list[int]:
    """Likely candidates whose prediction the last two steps have left unchanged; none before a tail's third step."""
    return [i for i in step.sequence if step.probability[i] >= STABLE and step.unchanged[i] >= STABLE_STEPS]


@attending
@tail_rule
def conflict(step: TailStep) -> list[int]:
    """The best candidates of which no two attend to one another; ends of text do not disturb each other."""
    chosen: list[int] = []
    for index in step.sequence:
        ends = step.tokens[index] in step.end_ids
        crowd = (i for i in chosen if not (ends and step.tokens[i] in step.end_ids))
        if all(step.attention[index][i] <= CONFLICT for i in crowd):
            chosen.append(index)
    return chosen


def tail_rules() -> tuple[str, ...]:
    """Every value of a policy's `tail_rule`."""
    return tuple(TAIL_RULES)


def run_numbers(canvas: list[int], mask_id: int) -> list[int]:
    """[L]: number of the maximal run of masked positions that a position belongs to (meaningless where decided)."""
    numbers, number, before = [], 0, False
    for token in canvas:
        masked = token == mask_id
        number += masked and not before
        numbers.append(number)
        before = masked
    return numbers


def without_repeats(step: TailStep, indices: list[int]) -> list[int]:
    """`indices` less those whose token stands within `NEAR` positions already, or would by an earlier one of them."""
    canvas = list(step.canvas)
    kept = []
    for index in indices:
        at, token = step.positions[index], step.tokens[index]
        if token not in step.end_ids and token in canvas[max(0, at - NEAR) : at + NEAR + 1]:
            continue
        canvas[at] = token
        kept.append(index)
    return kept


def together(name: str, step: TailStep, minimum: int, limit: int) -> NDArray[np.int64]:
    """Indices that a base step commits by the rule `name`, in order of position: `minimum` at least, `limit` at most.

    The schedule needs `minimum` to end in time: where the rule gives fewer, the best others follow, those that repeat
    no near token first.
    """
    likely = [index for index in TAIL_RULES[name](step) if step.probability[index] >= step.threshold]
    chosen = without_repeats(step, likely)[:limit]
    if len(chosen) < minimum:
        rest = [index for index in step.sequence if index not in chosen]
        fresh = without_repeats(step, [*chosen, *rest])[len(chosen) :]
        repeated = [index for index in rest if index not in fresh]
        chosen += [*fresh, *repeated][: minimum - len(chosen)]
    return np.sort(np.array(chosen, dtype=np.int64))
