"""An open-vocabulary n-gram language model: modified Kneser-Ney over words, spelled letter by letter where unknown.

Trigrams, back-off form (Chen and Goodman 1999): a kept n-gram has its interpolated probability, every other one the
probability of its shorter history times a back-off weight that makes each history sum to one. Texts are judged in
lower case and sentence by sentence, each from `<s>` to `</s>`, so that a text cut short pays for its missing end.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEGIN, END, UNKNOWN = 0, 1, 2
SPECIAL = ("<s>", "</s>", "<unk>")
_TOKEN = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*|[^\sa-z0-9]")
_SENTENCE_END = frozenset(".!?")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789'-"
_BITS = 15


def sentences(text: str) -> list[list[str]]:
    """Tokens of each sentence: lower-case words and single marks. A quote after a full stop stays with its sentence."""
    sentences: list[list[str]] = [[]]
    tokens = _TOKEN.findall(text.lower())
    for index, token in enumerate(tokens):
        sentences[-1].append(token)
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        ends = token in _SENTENCE_END or (token == '"' and index > 0 and tokens[index - 1] in _SENTENCE_END)
        if ends and following not in {*_SENTENCE_END, '"'} and following:
            sentences.append([])
    return sentences


@dataclass(frozen=True, slots=True)
class Score:
    """Total negative log-likelihood in nats, and the tokens (sentence ends included) that it is spread over."""

    nll: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Table:
    """Sorted keys of the kept n-grams of one order, their log-probabilities and, as histories, back-off weights."""

    keys: NDArray[np.int64]
    logp: NDArray[np.float32]
    backoff: NDArray[np.float32]

    def find(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Index of each key (0 where absent), and whether it is there."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        there = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        return np.where(there, at, 0), there


class NgramModel:
    """A trained model. `unigrams` has [V] log-probabilities and back-off weights."""

    def __init__(self, words: Sequence[str], tables: tuple[Table, Table, Table], spelling: NDArray[np.float32]) -> None:
        self.words = tuple(words)
        self.ids = {word: index for index, word in enumerate((*SPECIAL, *words))}
        self.tables = tables
        self.spelling = spelling

    def score(self, texts: Iterable[str]) -> list[Score]:
        """One score a text; an empty text is one sentence that ends at once."""
        return [self._score(text) for text in texts]

    def _score(self, text: str) -> Score:
        nll, tokens = 0.0, 0
        for sentence in sentences(text):
            ids = [self.ids.get(token, UNKNOWN) for token in sentence]
            nll -= float(self._logp(np.array([BEGIN, BEGIN, *ids, END], dtype=np.int64)).sum())
            nll += sum(self._spell(token) for token, i in zip(sentence, ids, strict=True) if i == UNKNOWN)
            tokens += len(ids) + 1
        return Score(nll, tokens)

    def _logp(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log-probability of every token from the third on, given the two before it."""
        one, two, three = self.tables
        u, v, w = ids[:-2], ids[1:-1], ids[2:]
        history, bigram = (u << _BITS) | v, (v << _BITS) | w
        at2, has2 = two.find(bigram)
        lower = np.where(has2, two.logp[at2], one.backoff[v] + one.logp[w])
        at_history, has_history = two.find(history)
        weight = np.where(has_history, two.backoff[at_history], 0.0)
        at3, has3 = three.find((history << _BITS) | w)
        logp: NDArray[np.float64] = np.where(has3, three.logp[at3], weight + lower).astype(np.float64)
        return logp

    def _spell(self, word: str) -> float:
        """Nats to spell an unknown word: letter bigrams from and to the word's edge."""
        edge = len(_LETTERS)
        letters = [edge, *(index if (index := _LETTERS.find(c)) >= 0 else edge for c in word), edge]
        return -float(sum(self.spelling[a, b] for a, b in pairwise(letters)))

    def save(self, path: Path) -> None:
        """Write a compressed npz without pickles: key differences and half-precision logarithms."""
        arrays: dict[str, Any] = {"words": np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)}
        arrays["spelling"] = self.spelling.astype(np.float16)
        for order, table in enumerate(self.tables, start=1):
            arrays[f"steps{order}"] = _planes(np.diff(table.keys, prepend=0))
            arrays[f"logp{order}"] = _quantise(table.logp)
            if order < 3:
                arrays[f"backoff{order}"] = _quantise(table.backoff)
        np.savez_compressed(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> NgramModel:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            words = arrays["words"].tobytes().decode().split("\n")
            tables = []
            for order in (1, 2, 3):
                keys = np.cumsum(_joined(arrays[f"steps{order}"]))
                logp = _restore(arrays[f"logp{order}"])
                backoff = _restore(arrays[f"backoff{order}"]) if order < 3 else np.zeros(0, dtype=np.float32)
                tables.append(Table(keys, logp, backoff))
            return cls(words, (tables[0], tables[1], tables[2]), arrays["spelling"].astype(np.float32))


def _quantise(values: NDArray[np.float32]) -> NDArray[np.int16]:
    """Nats in steps of 1/64: coarse enough to compress, finer than any figure that is reported."""
    return np.round(values * 64).astype(np.int16)


def _restore(values: NDArray[np.int16]) -> NDArray[np.float32]:
    return (values / 64).astype(np.float32)


def _planes(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """[8, N]: the bytes of each value, lowest first; the upper planes are nearly all zero."""
    return np.ascontiguousarray(values.astype("<i8").view(np.uint8).reshape(-1, 8).T)


def _joined(planes: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(planes.T).reshape(-1).view("<i8").astype(np.int64)


def train(texts: Iterable[str], least_word: int = 3, least_trigram: int = 1) -> NgramModel:
    """Count, discount, drop trigrams seen less than `least_trigram` times, and make every history sum to one."""
    lines = [sentence for text in texts for sentence in sentences(text)]
    counts = Counter(token for line in lines for token in line)
    words = sorted(word for word, count in counts.items() if count >= least_word)
    if len(words) + len(SPECIAL) >= 1 << _BITS:
        raise ValueError(f"{len(words)} words are too many for {_BITS}-bit ids; raise least_word")
    ids = {word: index for index, word in enumerate((*SPECIAL, *words))}
    trigrams: Counter[tuple[int, int, int]] = Counter()
    for line in lines:
        row = [BEGIN, BEGIN, *(ids.get(token, UNKNOWN) for token in line), END]
        trigrams.update(zip(row, row[1:], row[2:], strict=False))
    bigrams: Counter[tuple[int, int]] = Counter()
    for u, v, w in trigrams:
        bigrams[v, w] += 1  # distinct left contexts: the continuation counts of Kneser and Ney
        if u == BEGIN and v == BEGIN:
            bigrams[v, w] += trigrams[u, v, w] - 1  # nothing can stand before a sentence's first word
    unigrams: Counter[int] = Counter(w for _, w in bigrams)
    size = len(words) + len(SPECIAL)
    one = (np.array([unigrams[w] for w in range(size)], dtype=np.float64) + 0.5) / (sum(unigrams.values()) + 0.5 * size)
    p2 = _interpolate({((v,), w): n for (v, w), n in bigrams.items()}, lambda _, w: float(one[w]))
    p3 = _interpolate(
        {((u, v), w): n for (u, v, w), n in trigrams.items()},
        lambda h, w: p2.get((h[1:], w), 0.0),
    )
    kept = {key: p for key, p in p3.items() if trigrams[key[0][0], key[0][1], key[1]] >= least_trigram}
    backoff1 = _weights(p2, lambda _, w: float(one[w]))
    backoff2 = _weights(kept, lambda h, w: p2[h[1:], w])
    # The start of a sentence is a history that no bigram spells; its entry says what backing off would have said.
    p2[(BEGIN,), BEGIN] = float(one[BEGIN]) * math.exp(backoff1[(BEGIN,)])
    tables = (
        Table(np.arange(size), np.log(one).astype(np.float32), _by_key(range(size), lambda v: backoff1.get((v,), 0.0))),
        _table(p2, backoff2),
        _table(kept, {}),
    )
    rare = Counter({word: 1 for word, count in counts.items() if count < least_word and word[0] in _LETTERS})
    return NgramModel(words, tables, _spelling(rare))


History = tuple[int, ...]
Probabilities = dict[tuple[History, int], float]


def _interpolate(counts: dict[tuple[History, int], int], lower: Any) -> Probabilities:
    """Modified Kneser-Ney: three discounts from the counts of counts, the mass they free spread by `lower`."""
    of = Counter(counts.values())
    y = of[1] / max(of[1] + 2 * of[2], 1)
    discount = [0.0, *(max(0.1, min(n - 0.1, n - (n + 1) * y * of[n + 1] / max(of[n], 1))) for n in (1, 2, 3))]
    total: defaultdict[History, int] = defaultdict(int)
    freed: defaultdict[History, float] = defaultdict(float)
    for (history, _), n in counts.items():
        total[history] += n
        freed[history] += discount[min(n, 3)]
    return {(h, w): (n - discount[min(n, 3)] + freed[h] * lower(h, w)) / total[h] for (h, w), n in counts.items()}


def _weights(kept: Probabilities, lower: Any) -> dict[History, float]:
    """Log back-off weight of each history: what its kept words leave, over what they leave one order down."""
    mine: defaultdict[History, float] = defaultdict(float)
    theirs: defaultdict[History, float] = defaultdict(float)
    for (h, w), p in kept.items():
        mine[h] += p
        theirs[h] += lower(h, w)
    return {h: math.log(max(1 - mine[h], 1e-6) / max(1 - theirs[h], 1e-6)) for h in mine}


def _table(kept: Probabilities, backoff: dict[History, float]) -> Table:
    rows = sorted((_key((*h, w)), math.log(p), backoff.get((*h, w), 0.0)) for (h, w), p in kept.items())
    keys, logp, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return Table(np.array(keys, dtype=np.int64), np.array(logp, dtype=np.float32), np.array(weights, dtype=np.float32))


def _key(gram: tuple[int, ...]) -> int:
    key = 0
    for word in gram:
        key = (key << _BITS) | word
    return key


def _by_key(keys: Iterable[int], value: Any) -> NDArray[np.float32]:
    return np.array([value(key) for key in keys], dtype=np.float32)


def _spelling(words: Counter[str]) -> NDArray[np.float32]:
    """[38 + 1, 38 + 1] log-probabilities of letter pairs (the last index is the edge), add-one smoothed."""
    counts = np.ones((len(_LETTERS) + 1, len(_LETTERS) + 1))
    edge = len(_LETTERS)
    for word in words:
        letters = [edge, *(index if (index := _LETTERS.find(c)) >= 0 else edge for c in word), edge]
        for a, b in pairwise(letters):
            counts[a, b] += 1
    logp: NDArray[np.float32] = np.log(counts / counts.sum(1, keepdims=True)).astype(np.float32)
    return logp
