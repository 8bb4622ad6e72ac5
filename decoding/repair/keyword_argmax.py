"""Where a missing keyword would go: one guided look at the text, open wherever the constraint does not need it.

The look is one step (two rows, one where the policy does not guide) without noise; what it would write is read off and
thrown away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from decoding.models.protocol import TextCodec
from decoding.records.trace import Trace
from decoding.repair.rounds import reopened_job
from decoding.repair.selectors import TOLERANCE, Key, RepairContext, constraint_aware, scores_without
from decoding.request.job import Anchor, Job


def missing_text(context: RepairContext) -> tuple[str, ...]:
    """Phrases that the constraint requires and the text lacks (case aside), each once."""
    text = context.decoded.text.lower()
    needed = Counter(phrase.lower() for phrase in context.predicate.required_text())
    return tuple(phrase for phrase, count in needed.items() if text.count(phrase) < count)


def first_tokens(phrases: Sequence[str], codec: TextCodec) -> frozenset[int]:
    """Ids that a phrase may begin with, at the start of a text or behind a word."""
    spelled = (codec.encode(before + phrase) for phrase in phrases for before in ("", " "))
    return frozenset(ids[0] for ids in spelled if ids)


def open_positions(context: RepairContext) -> tuple[int, ...]:
    """Candidates without which the text scores no worse; none where no phrase is missing."""
    if not missing_text(context):
        return ()
    gains = scores_without(context)
    return tuple(position for position in context.candidates if gains[position] >= -TOLERANCE)


def probe_job(job: Job, anchor: Anchor, positions: Sequence[int], number: int, mask_id: int) -> Job:
    """One guided step on `anchor` with `positions` open, which writes the most probable token everywhere."""
    opened = reopened_job(job, anchor, positions, number, mask_id)
    return replace(
        opened,
        sampling=replace(job.sampling, temperature=0.0),
        purpose="rollout",
        record="commits",
        noise=replace(job.noise, purpose="rollout", arm=f"{job.noise.arm}look", round=number),
        fill_step=opened.start_step,
    )


def probe(context: RepairContext, look: Trace) -> dict[int, Key]:
    """Positions first at which the look writes the beginning of a missing phrase, the most probable of them before
    others; then as `constraint_aware` has them.
    """
    wanted = first_tokens(missing_text(context), context.codec)
    stats = look.steps[0]
    places = {
        position: probability
        for position, token, probability in zip(stats.positions, stats.tokens, stats.confidence, strict=True)
        if token in wanted
    }
    plain = constraint_aware(context)
    return {p: (0.0, -places[p]) if p in places else (1.0, *key) for p, key in plain.items()}
