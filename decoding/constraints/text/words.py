"""Words of a text: the form in which texts are compared, runs of word characters, and the benchmarks' tokenisations."""

from __future__ import annotations

import importlib
import re
import string
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Final, Protocol, cast

_APOSTROPHES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\uff07": "'"})

_DOTTED_I: Final = re.compile("i\u0307+")
"""What lower case makes of the dotted capital I of Turkish."""

CLITICS: Final = frozenset({"n't"})
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
_WORD_CHARACTER: Final = re.compile(_WORD)


def normalise(text: str) -> str:
    """Caseless comparison form: NFC, case folded, curly apostrophes straight, every run of white space one space.

    The dotted capital I of Turkish is an i, as its lower case is: Unicode's folding leaves its dot behind.
    """
    folded = _DOTTED_I.sub("i", unicodedata.normalize("NFC", text).casefold())
    return " ".join(unicodedata.normalize("NFC", folded).translate(_APOSTROPHES).split())


def lowered(text: str) -> str:
    """NFC and lower case, character by character; the dotted capital I of Turkish is one character here as well."""
    return _DOTTED_I.sub("i", unicodedata.normalize("NFC", text).lower())


def runs(text: str) -> list[str]:
    """Maximal runs of word characters (letters, digits, underscore, combining marks) of a normalised text."""
    return _RUN.findall(text)


def required_words(phrase: str) -> frozenset[str]:
    """Runs of word characters that stand in every text containing `phrase` as a whole phrase."""
    plain = normalise(phrase)
    words = runs(plain)
    if plain in CLITICS:
        words = words[1:]
    return frozenset(words)


def run_starts(plain: str) -> Iterator[int]:
    """Where each run of word characters of a normalised text begins."""
    return (run.start() for run in _RUN.finditer(plain))


def run_at(plain: str) -> bool:
    """Whether a normalised text begins with a word character."""
    return _RUN.match(plain) is not None


def written_words(text: str) -> list[str]:
    """White-space separated words. What is nothing but punctuation, such as a dash between two words, is none."""
    return [word for word in text.split() if _RUN.search(word) or not all(map(_is_punctuation, word))]


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P"


def is_word_character(character: str) -> bool:
    """Whether `character` is a letter, a digit, an underscore or a mark on one."""
    return _WORD_CHARACTER.match(character) is not None


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
    hangs = plain in CLITICS or not is_word_character(plain[0])
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
    """Tokens of `nltk.word_tokenize(text, preserve_line=True)`: no sentence split first, so no NLTK data."""
    return _treebank().tokenize(text)


def collie_words(text: str) -> list[str]:
    """COLLIE's words: treebank tokens less single punctuation marks, without white space and full stops at their ends.

    Tokens of several marks stay ("--", and "..." as the empty word); clitics are words of their own.
    """
    return [token.strip().strip(".") for token in treebank_tokens(text) if token not in string.punctuation]


def collie_form(word: str) -> str:
    """COLLIE's comparison form: lower case, without punctuation and spaces at the ends unless nothing else is there."""
    lower = lowered(word)
    return lower.strip(string.punctuation + " ") or lower


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
