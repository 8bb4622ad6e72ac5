"""The n-gram judge: it is a probability distribution, survives saving, and prefers real text to spoiled text."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from gate_models.offline.scorers import ngram
from gate_models.offline.scorers.fluency import artifact_folder, shipped_judge
from gate_models.offline.scorers.ngram import BEGIN, END, SPECIAL, NgramModel
from gate_models.offline.scorers.train_fluency import shuffled, stuttering

TEXTS = [
    "the dog runs to the beach.",
    "the dog eats the red ball.",
    "a man walks to the beach with the dog.",
    "a man eats a red apple.",
    "the man and the dog walk home.",
    "a dog and a man sit on the beach.",
] * 2
REAL = [
    "A man is riding a bicycle down a quiet street.",
    "Two children are playing with a ball in the park.",
    "She opened the door and looked at the snow outside.",
    "The old woman sat on a bench and fed the birds.",
    "A group of people are standing around a table with food.",
    "The dog jumped into the lake to fetch the stick.",
]


@pytest.mark.parametrize("least", [1, 2])
def test_every_history_sums_to_one(least: int) -> None:
    """Over the whole vocabulary, for seen and unseen histories, with and without pruning."""
    model = ngram.train(TEXTS, least_word=2, least_trigram=least)
    size = len(model.words) + len(SPECIAL)
    rng = random.Random(0)
    histories = [
        (BEGIN, BEGIN),
        (BEGIN, model.ids["the"]),
        *((rng.randrange(size), rng.randrange(size)) for _ in range(60)),
    ]
    for u, v in histories:
        total = sum(math.exp(model._logp(np.array([u, v, w]))[0]) for w in range(size))
        assert total == pytest.approx(1.0, abs=1e-4)


def test_sentences_are_scored_apart_and_ends_count() -> None:
    model = ngram.train(TEXTS, least_word=2)
    first, second, both = model.score(["the dog runs.", "a man eats.", "The dog runs. A man EATS."])
    assert both.nll == pytest.approx(first.nll + second.nll)
    assert both.tokens == first.tokens + second.tokens == 10
    cut, whole = model.score(["the dog runs to the", "the dog runs to the beach."])
    assert cut.nll / cut.tokens > whole.nll / whole.tokens


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Stop! Now.", 2),
        ("One sentence", 1),
        ('"Stop." He ran.', 2),
        ("Wait... what?", 2),
        ("", 1),
    ],
)
def test_sentence_ends(text: str, parts: int) -> None:
    assert len(ngram.sentences(text)) == parts


def test_unknown_words_cost_their_spelling() -> None:
    model = ngram.train(TEXTS, least_word=2)
    short, long = model.score(["the zq runs.", "the zqzqzqzqzq runs."])
    assert long.nll > short.nll + 5
    assert all(math.isfinite(score.nll) for score in model.score(["", "é 🙂 #", "日本語", "the " * 200]))


def test_saving_changes_nothing_that_matters(tmp_path: Path) -> None:
    model = ngram.train(TEXTS, least_word=2)
    model.save(tmp_path / "model.npz")
    again = NgramModel.load(tmp_path / "model.npz")
    assert again.words == model.words
    for before, after in zip(model.score(TEXTS), again.score(TEXTS), strict=True):
        assert after.tokens == before.tokens
        assert after.nll == pytest.approx(before.nll, abs=0.02 * before.tokens)


def test_training_is_deterministic() -> None:
    first, second = ngram.train(TEXTS), ngram.train(TEXTS)
    assert [s.nll for s in first.score(REAL)] == [s.nll for s in second.score(REAL)]


def test_too_large_a_vocabulary_is_refused() -> None:
    words = [f"w{i:06d}" for i in range(1 << 15)]
    with pytest.raises(ValueError, match="raise least_word"):
        ngram.train([" ".join(words)], least_word=1)


def test_end_is_a_token_of_its_own() -> None:
    model = ngram.train(TEXTS, least_word=2)
    assert model.score(["the dog runs."])[0].tokens == 5
    assert model.ids["</s>"] == END


def test_the_shipped_judge_prefers_real_text() -> None:
    judge, rng = shipped_judge(), random.Random(1)
    for spoil in (shuffled, stuttering):
        for real, worse in zip(judge.score(REAL), judge.score([spoil(t, rng) for t in REAL]), strict=True):
            assert real.nll / real.tokens < worse.nll / worse.tokens
    repeated = judge.score(["The dog dog dog dog dog dog ran."])[0]
    assert repeated.nll / repeated.tokens > judge.score(["The dog ran across the field to the man."])[0].nll / 10


def test_the_shipped_judge_is_small() -> None:
    assert (artifact_folder() / "ngram.npz").stat().st_size < 4 * 2**20
