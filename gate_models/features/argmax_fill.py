"""What the text would be if decoding stopped here: features of its most probable completion, without a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from decoding.constraints import Constraint
from decoding.models.protocol import ModelSpec, TextCodec
from decoding.records.trace import StepStats
from gate_models.features.text_metrics import has_adjacent_repeat, words

NAMES: Final = (
    "fill_satisfied",
    "fill_score",
    "fill_score_change",
    "fill_checks",
    "fill_words",
    "fill_repeats",
    "committed_satisfied",
    "committed_score",
    "committed_words",
    "end_committed",
    "end_position",
)
_OPEN: Final = -1


@dataclass(frozen=True, slots=True)
class TextReader:
    """Turns canvases into text: what a gate must know of the model beyond its statistics."""

    codec: TextCodec
    end_ids: tuple[int, ...]

    @staticmethod
    def of(spec: ModelSpec, codec: TextCodec) -> TextReader:
        return TextReader(codec, spec.end_ids)

    def text(self, ids: Sequence[int]) -> str:
        """Text of canvas ids up to the first end-of-text; open positions are left out."""
        text_ids: list[int] = []
        for token in ids:
            if token in self.end_ids:
                break
            if token != _OPEN:
                text_ids.append(token)
        return self.codec.decode(text_ids)


def fill_features(
    history: Sequence[StepStats], length: int, predicate: Constraint | None, reader: TextReader
) -> dict[str, float]:
    """The features `NAMES` of a prefix that was recorded with its argmax fill; zeros without history or constraint.

    `fill_*` judge the canvas with its masks filled by the last step's most probable tokens, `committed_*` the committed
    tokens alone. `fill_score_change` is against the fill of the step before.
    """
    if not history or predicate is None:
        return dict.fromkeys(NAMES, 0.0)
    before, canvas = _canvases(history, length)
    text = reader.text(_filled(canvas, history[-1]))
    verdict = predicate.evaluate(text)
    committed = reader.text(canvas)
    committed_verdict = predicate.evaluate(committed)
    earlier = verdict.score
    if len(history) > 1:
        earlier = _score(predicate, reader.text(_filled(before, history[-2])))
    ends = [position for position, token in enumerate(canvas) if token in reader.end_ids]
    return {
        "fill_satisfied": float(verdict.satisfied),
        "fill_score": verdict.score,
        "fill_score_change": verdict.score - earlier,
        "fill_checks": sum(check.satisfied for check in verdict.checks) / len(verdict.checks),
        "fill_words": float(len(words(text))),
        "fill_repeats": float(has_adjacent_repeat(text)),
        "committed_satisfied": float(committed_verdict.satisfied),
        "committed_score": committed_verdict.score,
        "committed_words": float(len(words(committed))),
        "end_committed": float(bool(ends)),
        "end_position": (ends[0] if ends else length) / length,
    }


def _score(predicate: Constraint, text: str) -> float:
    return predicate.evaluate(text).score


def _canvases(history: Sequence[StepStats], length: int) -> tuple[list[int], list[int]]:
    """The canvas before and after the last step of `history`; open positions are negative."""
    canvas = np.full(length, _OPEN, dtype=np.int64)
    before = canvas
    for stats in history:
        if stats is history[-1]:
            before = canvas.copy()
        canvas[list(stats.positions)] = stats.tokens
    return before.tolist(), canvas.tolist()


def _filled(canvas: Sequence[int], stats: StepStats) -> list[int]:
    """`canvas` with its open positions filled by the argmax that `stats` recorded."""
    argmax = dict(zip(stats.argmax_positions, stats.argmax_tokens, strict=True))
    return [argmax.get(position, _OPEN) if token == _OPEN else token for position, token in enumerate(canvas)]
