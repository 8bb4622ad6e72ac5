"""Ways to spoil a sentence: what parallel decoding does to English, done to text by people on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from gate_models.offline.judge.model.language_model import written

ENDS: Final = ".!?"
LONG: Final = 4
"""Letters of a word that is likely to carry meaning."""
_LITTLE: Final = "a an the in on at of to with by from for and as is are was were into over under near".split()
_ENDINGS: Final = ("ing", "ed", "s")
Spoil = Callable[[list[str], random.Random, list[list[str]]], list[str]]


def shuffled(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Another order."""
    order = words
    while order == words and len(set(words)) > 1:
        order = rng.sample(words, len(words))
    return order


def dropped(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Without one word."""
    at = rng.randrange(len(words))
    return words[:at] + words[at + 1 :]


def doubled(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """One word written twice."""
    at = rng.randrange(len(words))
    return [*words[: at + 1], *words[at:]]


def substituted(words: list[str], rng: random.Random, others: list[list[str]]) -> list[str]:
    """One long word replaced by a long word of another text."""
    at = rng.choice(_long(words))
    other = _foreign(rng, others, words[at])
    return [*words[:at], other, *words[at + 1 :]]


def phrase_doubled(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Two to four words written twice, the second time here or later."""
    size = min(rng.randint(2, 4), len(words))
    at = rng.randrange(len(words) - size + 1)
    to = rng.randint(at + size, len(words))
    return [*words[:to], *words[at : at + size], *words[to:]]


def swapped(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Two long words have changed places."""
    long = _long(words)
    if len(long) < 2:
        return shuffled(words, rng, [])
    a, b = rng.sample(long, 2)
    changed = list(words)
    changed[a], changed[b] = words[b], words[a]
    return changed if changed != words else shuffled(words, rng, [])


def echoed(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """One or two long words replaced by another of the same text."""
    long = _long(words)
    changed = list(words)
    for _round in range(rng.randint(1, 2)):
        a, b = rng.choice(long), rng.choice(long)
        changed[a] = words[b]
    return changed if changed != words else doubled(words, rng, [])


def little_changed(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Two little words dropped, added or replaced."""
    changed = list(words)
    for _round in range(2):
        places = [at for at, word in enumerate(changed) if word in _LITTLE]
        what = rng.randrange(3)
        if what == 0 and places:
            changed.pop(rng.choice(places))
        elif what == 1 and places:
            changed[rng.choice(places)] = rng.choice(_LITTLE)
        else:
            changed.insert(rng.randrange(1, len(changed) + 1), rng.choice(_LITTLE))
    return changed if changed != words else doubled(words, rng, [])


def inflected(words: list[str], rng: random.Random, _: list[list[str]]) -> list[str]:
    """Endings of one or two long words cut or changed."""
    changed = list(words)
    for at in rng.sample(_long(words), min(rng.randint(1, 2), len(_long(words)))):
        word = changed[at]
        ending = next((e for e in _ENDINGS if word.endswith(e) and len(word) > len(e) + 2), "")
        stem = word[: len(word) - len(ending)]
        changed[at] = stem + rng.choice([e for e in ("", *_ENDINGS) if e != ending])
    return changed if changed != words else doubled(words, rng, [])


def spliced(words: list[str], rng: random.Random, others: list[list[str]]) -> list[str]:
    """The beginning of the text and the end of another."""
    other = rng.choice(others)
    return words[: rng.randint(len(words) // 3, max(1, len(words) - 2))] + other[len(other) // 2 :]


def crowded(words: list[str], rng: random.Random, others: list[list[str]]) -> list[str]:
    """Two or three long words replaced by long words of other texts."""
    changed = words
    for _round in range(rng.randint(2, 3)):
        changed = substituted(changed, rng, others)
    return changed


SPOILS: Final[dict[str, Spoil]] = {
    "shuffled": shuffled,
    "word dropped": dropped,
    "word doubled": doubled,
    "word substituted": substituted,
    "phrase doubled": phrase_doubled,
    "words swapped": swapped,
    "word echoed": echoed,
    "little words changed": little_changed,
    "endings changed": inflected,
    "texts spliced": spliced,
    "words substituted": crowded,
}


def spoiled(texts: Sequence[str], kind: str, seed: int = 0) -> list[str]:
    """Every text spoiled once; capital and end mark stay where they were. A text of one word stays as it is."""
    rng = random.Random(f"{seed} {kind}")
    split = [_lowered(text) for text in texts]
    others = [words for words in split if words]
    spoils = []
    for text, words in zip(texts, split, strict=True):
        end = text[len(text.rstrip(ENDS)) :]
        spoils.append(written(" ".join(SPOILS[kind](words, rng, others)) + end) if len(words) > 1 else text)
    return spoils


def _lowered(text: str) -> list[str]:
    words = text.rstrip(ENDS).split()
    return [words[0][:1].lower() + words[0][1:], *words[1:]] if words else []


def _long(words: list[str]) -> list[int]:
    """Places of the long words; all places where there is none."""
    return [at for at, word in enumerate(words) if len(word) >= LONG] or list(range(len(words)))


def _foreign(rng: random.Random, others: list[list[str]], word: str) -> str:
    """A long word of some text, another than `word`; `word` itself where none is found."""
    for _ in range(100):
        words = rng.choice(others)
        other = rng.choice(words)
        if len(other) >= LONG and other.islower() and other != word:
            return other
    return word
