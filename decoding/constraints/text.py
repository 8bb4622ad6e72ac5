"""Words and phrases of a text: normalisation, whole-phrase matching, and the two tokenisations of the benchmarks."""

from __future__ import annotations

import importlib
import re
import string
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final, Protocol, cast

_APOSTROPHES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\uff07": "'"})

_CLITICS: Final = frozenset({"n't"})
"""Keywords that begin with a letter and yet are the tail of a word ("don't"): they need no boundary on their left."""


def _combining_marks() -> str:
    """Character-class ranges of all combining marks, which continue a word but are no `\\w` in Python."""
    ranges: list[list[int]] = []
    for code in range(0x300, sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
        elif code == 0x20000:  # the next marks are the variation selectors of plane 14
            break
    ranges.append([0xE0100, 0xE01EF])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


_WORD: Final = rf"[\w{_combining_marks()}]"
_RUN: Final = re.compile(_WORD + "+")
_ONE_WORD_CHARACTER: Final = re.compile(_WORD)


def normalise(text: str) -> str:
    """Caseless comparison form: NFC, case folded, curly apostrophes straight, every run of white space one space."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.translate(_APOSTROPHES).split())


def runs(text: str) -> list[str]:
    """Maximal runs of word characters (letters, digits, underscore, combining marks) of a normalised text."""
    return _RUN.findall(text)


def required_words(phrase: str) -> frozenset[str]:
    """Runs of word characters that stand in every text containing `phrase` as a whole phrase."""
    plain = normalise(phrase)
    words = runs(plain)
    if plain in _CLITICS:
        words = words[1:]
    return frozenset(words)


def _is_word(character: str) -> bool:
    return _ONE_WORD_CHARACTER.match(character) is not None


class PhraseMatcher:
    """Finds whole phrases in a text, case ignored, in one pass whatever the number of phrases.

    A side of a phrase that is a word character must meet a word boundary there (the `\\b` of the paper); a side that
    is not ("c++", ".net", "'s") needs none, nor does the left side of the clitic "n't". Phrases are compared in
    `normalise` form.
    """

    __slots__ = ("_headed", "_unheaded")

    def __init__(self, phrases: Iterable[str]) -> None:
        self._headed: dict[str, list[str]] = {}
        self._unheaded: list[str] = []
        for phrase in dict.fromkeys(normalise(phrase) for phrase in phrases):
            if not phrase:
                raise ValueError("a phrase to match must not be blank")
            head = None if phrase in _CLITICS else _RUN.match(phrase)
            if head:
                self._headed.setdefault(head.group(), []).append(phrase)
            else:
                self._unheaded.append(phrase)

    def matches(self, text: str) -> set[str]:
        """The phrases (in `normalise` form) that occur in `text`."""
        plain = normalise(text)
        hits = {phrase for phrase in self._unheaded if _ends_whole_somewhere(phrase, plain)}
        if not self._headed:
            return hits
        pending: dict[str, list[str]] = {}
        for run in _RUN.finditer(plain):
            head = run.group()
            if head not in self._headed:
                continue
            if head not in pending:
                pending[head] = [phrase for phrase in self._headed[head] if phrase in plain]
            start = run.start()
            whole = [p for p in pending[head] if plain.startswith(p, start) and _ends_whole(p, plain, start)]
            if whole:
                hits.update(whole)
                pending[head] = [phrase for phrase in pending[head] if phrase not in hits]
        return hits


def _ends_whole(phrase: str, plain: str, start: int) -> bool:
    end = start + len(phrase)
    return end == len(plain) or not (_is_word(phrase[-1]) and _is_word(plain[end]))


def _ends_whole_somewhere(phrase: str, plain: str) -> bool:
    start = plain.find(phrase)
    while start >= 0 and not _ends_whole(phrase, plain, start):
        start = plain.find(phrase, start + 1)
    return start >= 0


@lru_cache(maxsize=64)
def matcher(phrases: tuple[str, ...]) -> PhraseMatcher:
    """A `PhraseMatcher` of `phrases`, remembered: word lists of avoidance hold thousands of entries."""
    return PhraseMatcher(phrases)


def standing_inside(phrases: Iterable[str]) -> set[str]:
    """Those of `phrases` (in `normalise` form) that stand, as whole phrases, inside another one."""
    listed = tuple(phrases)
    every = PhraseMatcher(listed)
    return {inner for phrase in listed for inner in every.matches(phrase) if inner != normalise(phrase)}


def least_words_of(demands: Iterable[tuple[str, ...]]) -> int:
    """White-space separated words that a text needs to hold, of each tuple of alternatives, at least one phrase.

    A lower bound for texts that do not join words by punctuation alone ("dog/ball"): words that share a run of word
    characters ("dog", "dog-friendly") may be one occurrence, and a phrase that may hang on another ("'s") adds none.
    """
    total, counted = 0, set[str]()
    for alternatives in demands:
        words = [_own_words(phrase) for phrase in alternatives]
        every = {run for listed in words for word in listed for run in word}
        certain = words[0] if len(words) == 1 else [word for word in words[0] if all(word in other for other in words)]
        if every & counted:
            total += _apart(certain, counted)
        else:
            total += min(_apart(listed, set()) for listed in words)
        counted |= every
    return total


def _own_words(phrase: str) -> list[frozenset[str]]:
    """Runs of each white-space separated word of `phrase` that no other phrase's word can carry on its end."""
    plain = normalise(phrase)
    hangs = plain in _CLITICS or not _is_word(plain[0])
    return [frozenset(parts) for word in plain.split()[hangs:] if (parts := runs(word))]


def _apart(words: Iterable[frozenset[str]], taken: set[str]) -> int:
    """How many of `words` share no run with `taken` or with an earlier one."""
    used, count = set(taken), 0
    for word in words:
        count += not word & used
        used |= word
    return count


class _Tokenizer(Protocol):
    def tokenize(self, text: str) -> list[str]: ...


@cache
def _treebank() -> _Tokenizer:
    # Imported on first use: nltk's package init loads scikit-learn where it is installed, which takes a second.
    module = importlib.import_module("nltk.tokenize.destructive")
    return cast("_Tokenizer", module.NLTKWordTokenizer())


def treebank_tokens(text: str) -> list[str]:
    """Tokens of `nltk.word_tokenize(text, preserve_line=True)`: no sentence split first, hence no NLTK data."""
    return _treebank().tokenize(text)


def collie_words(text: str) -> list[str]:
    """COLLIE's words: treebank tokens less single punctuation marks, without white space and full stops at their ends.

    Tokens of several marks stay ("--", and "..." as the empty word); clitics are words of their own.
    """
    return [token.strip().strip(".") for token in treebank_tokens(text) if token not in string.punctuation]


def collie_form(word: str) -> str:
    """COLLIE's comparison form: lower case, without punctuation and spaces at the ends unless nothing else is there."""
    lowered = word.lower()
    return lowered.strip(string.punctuation + " ") or lowered


@lru_cache(maxsize=4096)
def longest_collie_word(phrase: str) -> int:
    """Characters of the longest COLLIE word of `phrase` (0 when it has none)."""
    return max(map(len, collie_words(phrase)), default=0)


def plural(count: int, noun: str) -> str:
    """`count` and `noun`, with an s unless there is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def quoted(items: Sequence[str]) -> str:
    """Comma-separated list of quoted items."""
    return ", ".join(f"'{item}'" for item in items)


def word_range(low: int, high: int | None) -> str:
    """An instruction for a number of words."""
    if high is None:
        return f"Use at least {plural(low, 'word')}."
    if low == high:
        return f"Use exactly {plural(low, 'word')}."
    if low <= 1:
        return f"Use at most {plural(high, 'word')}."
    return f"Use between {low} and {high} words."
