"""Text -> hashed features of the shipped sentiment model.

One function, shared by training (`gate_models/offline/scorers/train_sentiment.py`) and inference: the two can never
drift apart. Features are binary (present or not). Names never leave this module, only their CRC-32 buckets do, so
the shipped model holds numbers and no training text.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

_WORD_BUCKETS: Final = 1 << 20
_GRAM_BUCKETS: Final = 1 << 19
BUCKETS: Final = _WORD_BUCKETS + _GRAM_BUCKETS
"""Number of hash buckets, the length of the weight vector: words (plain and negated) first, then all other grams.

Apart, because the lexicon folded into the words' weights would otherwise spoil the grams it collides with.
"""

MAX_WORDS: Final = 512
"""Words read from a text; what follows is ignored, as a transformer classifier with 512 positions would."""

FEATURE_VERSION: Final = 1
"""Raise it whenever a change here alters a feature: a model trained for another version is refused."""

_MAX_CHARS: Final = MAX_WORDS * 32
_MAX_WORD_CHARS: Final = 40
_NEGATION_WINDOW: Final = 4
_CHAR_ORDERS: Final = (3, 4, 5)
_QUOTES: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "`": "'"})
# Treebank-style corpora write "does n't" and "it 's"; plain text does not. Both become "doesn't" and "it's".
_DETACHED_CLITIC: Final = re.compile(r" (?=(?:n't|'(?:s|re|ve|ll|d|m))\b)")
_TOKEN: Final = re.compile(r"\w+(?:['-]\w+)*|[.,;:!?]")
_SCOPE_END: Final = frozenset(".,;:!?")
_SCOPE_BREAKERS: Final = frozenset({"but", "although", "though", "however", "yet"})
_NEGATIONS: Final = frozenset(
    "not no never nothing nobody none nor neither without cannot hardly barely scarcely rarely lacks lack lacking "
    "fails fail failed less few little".split()
)


def words(text: str) -> list[str]:
    """Lower-cased words and sentence marks of the first `MAX_WORDS` words of `text`."""
    plain = unicodedata.normalize("NFC", text[:_MAX_CHARS]).translate(_QUOTES).lower()
    plain = _DETACHED_CLITIC.sub("", " ".join(plain.split()))
    return [token[:_MAX_WORD_CHARS] for token in _TOKEN.findall(plain)[:MAX_WORDS]]


def feature_names(text: str) -> set[str]:
    """Distinct feature strings of `text`: word 1- and 2-grams, words under negation, character 3- to 5-grams."""
    tokens = words(text)
    return word_names(tokens).union(*map(_gram_names, tokens))


def word_names(tokens: Iterable[str]) -> set[str]:
    """The feature strings that are made of whole words: 1- and 2-grams, and words under negation."""
    names: set[str] = set()
    scope, previous = 0, "^"
    for token in tokens:
        if token in _SCOPE_END or token in _SCOPE_BREAKERS:
            scope = 0
        names.add("1" + token)
        names.add("2" + previous + " " + token)
        if scope:
            names.add("n" + token)
            scope -= 1
        if token in _NEGATIONS or token.endswith("n't"):
            scope = _NEGATION_WINDOW
        previous = token
    names.add("2" + previous + " $")
    return names


def _gram_names(token: str) -> Iterator[str]:
    padded = "<" + token + ">"
    for order in _CHAR_ORDERS:
        for start in range(len(padded) - order + 1):
            yield "c" + padded[start : start + order]


@lru_cache(maxsize=4096)
def _gram_buckets(token: str) -> frozenset[int]:
    return frozenset(map(bucket, _gram_names(token)))


def bucket(name: str) -> int:
    """Bucket in [0, BUCKETS) of one feature string: CRC-32, the same on every platform and Python."""
    code = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    return code % _WORD_BUCKETS if name[0] in "1n" else _WORD_BUCKETS + code % _GRAM_BUCKETS


def features(text: str) -> list[int]:
    """Sorted distinct buckets of `text`'s features; empty when it holds no word."""
    tokens = words(text)
    return sorted(set(map(bucket, word_names(tokens))).union(*map(_gram_buckets, tokens))) if tokens else []
