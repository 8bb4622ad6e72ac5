"""Finds whole phrases in a text, all of a list in one pass: the time grows with the text, hardly with the list.

A client chooses the phrases, so no list may be slow: the cost of a place in the text is one search among sorted
phrases, and the matchers that are remembered are bounded in bytes.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from decoding.constraints.text.words import CLITICS, is_word_character, normalise, run_at, run_starts

CACHED_BYTES: Final = 32 << 20
"""Of the matchers that are remembered, as `PhraseMatcher.bytes` estimates them."""
_BYTES_A_PHRASE: Final = 256


class _Sorted:
    """Phrases in order, each with the longest other one that it begins with.

    Every phrase that stands at a place is the last one that sorts before the text there, or a beginning of it.
    """

    __slots__ = ("_beginnings", "_longest", "_phrases", "heads")

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = sorted(phrases)
        self._longest = max(map(len, self._phrases), default=0)
        self.heads = frozenset(phrase[0] for phrase in self._phrases)
        self._beginnings: list[int] = []
        open_phrases: list[int] = []
        for index, phrase in enumerate(self._phrases):
            while open_phrases and not phrase.startswith(self._phrases[open_phrases[-1]]):
                open_phrases.pop()
            self._beginnings.append(open_phrases[-1] if open_phrases else -1)
            open_phrases.append(index)

    def whole_at(self, plain: str, starts: Iterable[int]) -> Iterator[str]:
        """The phrases that stand at one of `starts` and end whole there; one may come several times."""
        phrases, beginnings, longest = self._phrases, self._beginnings, self._longest
        walked: set[int] = set()
        for start in starts:
            index = bisect_right(phrases, plain[start : start + longest]) - 1
            while index >= 0:
                phrase = phrases[index]
                if plain.startswith(phrase, start):
                    if _ends_whole(phrase, plain, start):
                        yield phrase
                    if index in walked:  # its beginnings are followed by the same characters as the first time
                        break
                    walked.add(index)
                index = beginnings[index]


class PhraseMatcher:
    """Finds whole phrases in a text, case ignored, in one pass whatever the number of phrases.

    A side of a phrase that is a word character must meet a word boundary there (the `\\b` of the paper); a side that
    is not ("c++", ".net", "'s") needs none, nor does the left side of the clitic "n't". Phrases are compared in
    `normalise` form.
    """

    __slots__ = ("_headed", "_unheaded", "bytes")

    def __init__(self, phrases: Iterable[str]) -> None:
        plain = dict.fromkeys(map(normalise, phrases))
        if "" in plain:
            raise ValueError("a phrase to match must not be blank")
        headed = [phrase for phrase in plain if phrase not in CLITICS and run_at(phrase)]
        self._headed = _Sorted(headed)
        """Phrases that must begin where a run of word characters does."""
        self._unheaded = _Sorted(plain.keys() - set(headed))
        self.bytes = sum(2 * len(phrase) + _BYTES_A_PHRASE for phrase in plain)
        """About what it takes."""

    def matches(self, text: str) -> set[str]:
        """The phrases (in `normalise` form) that occur in `text`."""
        return set(self._found(normalise(text)))

    def occurs_in(self, text: str) -> bool:
        """Whether any phrase occurs in `text`; no further one is looked for."""
        return next(self._found(normalise(text)), None) is not None

    def _found(self, plain: str) -> Iterator[str]:
        heads = self._headed.heads
        if heads:
            yield from self._headed.whole_at(plain, (at for at in run_starts(plain) if plain[at] in heads))
        heads = self._unheaded.heads
        if heads:
            starts = (at for at, character in enumerate(plain) if character in heads)
            yield from self._unheaded.whole_at(plain, starts)


def _ends_whole(phrase: str, plain: str, start: int) -> bool:
    end = start + len(phrase)
    return end == len(plain) or not (is_word_character(phrase[-1]) and is_word_character(plain[end]))


class MatcherCache:
    """The matchers that were asked for last, at most `limit` bytes of them. Thread-safe."""

    def __init__(self, limit: int = CACHED_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[tuple[bool, tuple[str, ...]], PhraseMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, phrases: tuple[str, ...], *, plurals: bool = False) -> PhraseMatcher:
        """A matcher of `phrases`; with `plurals` of each with an s, too."""
        key = plurals, phrases
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = PhraseMatcher(with_plurals(phrases) if plurals else phrases)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self.bytes += made.bytes
            while self.bytes > self.limit:
                self.bytes -= self._kept.popitem(last=False)[1].bytes
        return made


_CACHE: Final = MatcherCache()
matcher = _CACHE.matcher


def with_plurals(words: Iterable[str]) -> tuple[str, ...]:
    """Each word, and it with an s."""
    return tuple(form for word in words for form in (word, word + "s"))


def standing_inside(phrases: Sequence[str]) -> set[str]:
    """Those of `phrases` (in `normalise` form) that stand, as whole phrases, inside another one."""
    every = PhraseMatcher(phrases)
    return {inner for phrase in phrases for inner in every.matches(phrase) if inner != normalise(phrase)}
