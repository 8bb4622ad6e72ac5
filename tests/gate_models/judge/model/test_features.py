"""Features: each says what its description says, and none fails on odd texts."""

from __future__ import annotations

import numpy as np
import pytest

from gate_models.offline.judge.model.features import (
    END,
    FEATURES,
    PLAIN,
    SAID,
    features,
    matrix,
    repeats,
    stem,
    surprise,
)
from gate_models.offline.judge.model.language_model import Surprisals
from gate_models.offline.judge.model.unigrams import VOCABULARY
from tests.gate_models.judge.fake import FakeModel


def score(nats: list[float], ids: list[int] | None = None) -> Surprisals:
    values = np.array(nats, np.float32)
    return Surprisals(
        np.array(ids or range(len(nats)), np.int32), values, np.zeros_like(values), np.zeros(4, np.float32)
    )


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("A man rides a horse.", 0.0),
        ("A dog and a dog and two dogs.", 0.5),  # dog, dog, two, dogs
        ("They play, played and are playing.", 2 / 3),
        ("The of and.", 0.0),
        ("", 0.0),
    ],
)
def test_repeats(text: str, share: float) -> None:
    assert repeats(text) == pytest.approx(share)


def test_a_stem_keeps_three_letters() -> None:
    assert [stem(word) for word in ("riding", "ride", "red", "bus", "goes")] == ["rid", "rid", "red", "bus", "goe"]


def test_surprisals_leave_the_first_token_out() -> None:
    unigrams = np.full(VOCABULARY, 5.0, np.float32)
    measured = surprise(score([99.0, 1.0, 3.0, 7.0, 9.0]), unigrams)
    assert measured["mean"] == pytest.approx(5.0)
    assert measured["max"] == pytest.approx(9.0)
    assert measured["top"] == pytest.approx(19 / 3)
    assert measured["slor"] == pytest.approx(0.0)
    assert measured["odd_tokens"] == 2
    assert measured["odd_share"] == pytest.approx(0.25)


def test_the_worst_window_and_new_tokens() -> None:
    unigrams = np.zeros(VOCABULARY, np.float32)
    measured = surprise(score([0, 1, 1, 1, 1, 5, 5, 5, 5, 1], [7, 1, 2, 3, 4, 1, 2, 5, 6, 7]), unigrams)
    assert measured["slor_window"] == pytest.approx(-5.0)
    assert measured["new_mean"] == pytest.approx((1 + 1 + 1 + 1 + 5 + 5) / 6)


@pytest.mark.parametrize("nats", [[], [4.0], [4.0, 2.0]])
def test_short_texts(nats: list[float]) -> None:
    measured = features("Dog." if nats else "", score(nats))
    assert set(measured) == set(SAID) - {END}
    assert all(np.isfinite(list(measured.values())))


def test_the_worst_sentence_counts() -> None:
    one = features("A dog and a dog run. A cat sleeps.", score([1.0]))
    assert one["sentence_repeats"] == pytest.approx(1 / 3)
    assert one["repeats"] == pytest.approx(1 / 5)


def test_a_matrix_has_a_row_a_text() -> None:
    model = FakeModel()
    texts = ["A dog runs.", "Two cats sleep on the long mat.", ""]
    rows, ends = matrix(texts, model)
    assert rows.shape == (3, len(FEATURES))
    assert len(ends) == 3
    assert np.allclose(rows[1], matrix(texts[1:2], model)[0][0])
    assert matrix([], model, PLAIN)[0].shape == (0, 4)


def test_what_is_weighed_is_described() -> None:
    assert set(FEATURES) | set(PLAIN) <= set(SAID)
