"""Stop strings: a finished text ends before the first of them. The canvas is decoded whole all the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from decoding.models.protocol import TextCodec


def before_stop(text: str, stop: Sequence[str]) -> str:
    """`text` up to the first place where one of `stop` begins; all of it where none occurs."""
    places = [place for phrase in stop if (place := text.find(phrase)) >= 0]
    return text[: min(places)] if places else text


def certain(text: str, stop: Sequence[str]) -> str:
    """The beginning of `text` that no text which goes on from it can cut: its end may be the beginning of a stop."""
    held = max((_overlap(text, phrase) for phrase in stop), default=0)
    return before_stop(text, stop)[: len(text) - held]


def tokens_before_stop(content: Sequence[int], stop: Sequence[str], codec: TextCodec) -> int:
    """How many tokens of a finished text write what is left of it: what its usage counts."""
    ids = list(content)
    whole = codec.decode(ids) if stop else ""
    kept = before_stop(whole, stop)
    if len(kept) == len(whole):
        return len(ids)
    return bisect_left(range(len(ids)), len(kept), key=lambda count: len(codec.decode(ids[:count])))


def _overlap(text: str, phrase: str) -> int:
    """Characters at the end of `text` that are the beginning of `phrase`."""
    return next((size for size in range(min(len(text), len(phrase) - 1), 0, -1) if text.endswith(phrase[:size])), 0)
