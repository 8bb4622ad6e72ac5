"""Spoiled texts: each kind spoils as it says, and a judge that knows nothing has an AUC of one half."""

from __future__ import annotations

import pytest

from gate_models.offline.judge.validation.robustness import KINDS, references, robustness, spoiled

TEXTS = ["A dog runs on the long beach.", "Two children play with a yellow ball in the park."] * 20


def words(text: str) -> list[str]:
    return text.rstrip(".").lower().split()


@pytest.mark.parametrize("kind", KINDS)
def test_a_spoiled_text_differs_and_looks_like_one(kind: str) -> None:
    for whole, text in zip(TEXTS, spoiled(TEXTS, kind), strict=True):
        assert text != whole
        assert text[0].isupper()
        assert text.endswith(".")
        more = {"shuffled": 0, "word dropped": -1, "word doubled": 1, "word substituted": 0}[kind]
        assert len(words(text)) == len(words(whole)) + more
        if kind == "shuffled":
            assert sorted(words(text)) == sorted(words(whole))
        if kind == "word substituted":
            assert sum(a != b for a, b in zip(words(text), words(whole), strict=True)) == 1


def test_it_is_the_same_every_time() -> None:
    assert spoiled(TEXTS, "shuffled") == spoiled(TEXTS, "shuffled")
    assert len(set(spoiled(TEXTS, "word dropped"))) > 4


def test_blind_and_sharp_judges() -> None:
    assert robustness(lambda texts: [0.5] * len(texts), TEXTS) == dict.fromkeys(KINDS, 0.5)
    known = set(TEXTS)
    assert robustness(lambda texts: [float(t in known) for t in texts], TEXTS) == dict.fromkeys(KINDS, 1.0)


def test_the_shipped_references_are_sentences() -> None:
    sentences = references()
    assert len(set(sentences)) == 300
    assert all(text[0].isupper() or not text[0].isalpha() for text in sentences)
