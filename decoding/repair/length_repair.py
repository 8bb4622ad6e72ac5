"""Length repair: a text that is too short or too long has its tail moved, so that its end is not where it was.

Reopening positions in place keeps the number of positions before the end-of-text, and mostly the number of words. Here
some positions are opened between the words that stay, or taken out, and whatever follows moves right or left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from decoding.constraints.base.constraint import Check
from decoding.constraints.text.words import written_words
from decoding.repair.passes import DecodedText, Values
from decoding.repair.selectors import TOLERANCE, RepairContext


@dataclass(frozen=True, slots=True)
class Moved:
    """A pass as it would stand with its tail moved; `positions` are open."""

    decoded: DecodedText
    canvas: tuple[int, ...]
    positions: tuple[int, ...]


def words_missing(context: RepairContext) -> int:
    """Words that the text lacks (negative: has too many); 0 where length is not what is wrong.

    A text is too long where some check would score better without any one of its words. Its surplus is the
    number of words that have to go from its end until that check holds.
    """
    words, predicate = written_words(context.decoded.text), context.predicate
    lacking = predicate.minimum_words() - len(words)
    if lacking > 0:
        return lacking

    def checks(kept: Sequence[str]) -> tuple[Check, ...]:
        return predicate.evaluate(" ".join(kept)).checks

    shorter = [checks(words[:at] + words[at + 1 :]) for at in range(len(words))]
    for index, check in enumerate(checks(words)):
        if check.satisfied or any(one[index].score <= check.score + TOLERANCE for one in shorter):
            continue
        lengths = range(len(words) - 1, 0, -1)
        return -next((len(words) - n for n in lengths if checks(words[:n])[index].satisfied), 0)
    return 0


def shift_tail(context: RepairContext, reopen: int, number: int, mask_id: int, end_id: int) -> Moved | None:
    """The tail moved by as many positions as words are missing or too many, with at most `reopen` positions open.

    The place is the stretch whose tokens were committed least confidently, and whose loss costs no part of the
    constraint that holds; round `number` takes the next best. None where length is not what is wrong, the canvas has no
    room, or it may not end early (`suppress_eos`).
    """
    missing, job = words_missing(context), context.decoded.state.job
    content = context.decoded.state.content()
    room = job.gen_length - len(content)
    added = min(missing, reopen, room) if missing > 0 else 0
    dropped = max(0, min(-missing, len(content) - 1))
    if not added and (not dropped or job.sampling.suppress_eos):
        return None
    kept_open = min(reopen - added, len(content) - dropped)
    stretch = kept_open + dropped
    starts = range(len(content) - stretch + 1)
    ranked = sorted(
        starts, key=lambda start: (_lost(context, content, start, stretch), _sure(context.decoded, start, stretch))
    )
    start, opened = ranked[(number - 1) % len(ranked)], added + kept_open

    def move(values: Values) -> Values:
        blank = np.full(opened, np.nan)
        line = np.concatenate([values[:start], blank, values[start + stretch : len(content)]])
        return np.concatenate([line, np.full(values.size - line.size, np.nan)])

    canvas = [*content[:start], *[mask_id] * opened, *content[start + stretch :]]
    canvas += [end_id] * (context.decoded.confidence.size - len(canvas))
    decoded = context.decoded
    moved = replace(decoded, confidence=move(decoded.confidence), variation=move(decoded.variation))
    return Moved(moved, tuple(canvas), tuple(range(start, start + opened)))


def _lost(context: RepairContext, content: Sequence[int], start: int, stretch: int) -> int:
    """Checks that hold now and would not without the stretch."""
    if not stretch:
        return 0
    rest = context.codec.decode([*content[:start], *content[start + stretch :]])
    before = context.predicate.evaluate(context.decoded.text).checks
    after = context.predicate.evaluate(rest).checks
    return sum(one.satisfied and not other.satisfied for one, other in zip(before, after, strict=True))


def _sure(decoded: DecodedText, start: int, stretch: int) -> float:
    """Mean confidence of the stretch; of the token that an empty one stands before."""
    values = np.nan_to_num(decoded.confidence[start : start + max(1, stretch)], nan=1.0)
    return float(values.mean())
