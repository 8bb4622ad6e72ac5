"""Features of the judge: repeats by stem, surprisals less their frequency, texts without tokens."""

from __future__ import annotations

import numpy as np
import pytest

from gate_models.offline.judge.model.features import FEATURES, SAID, features_of, matrix, repeated
from gate_models.offline.judge.model.language_model import Surprisals
from gate_models.offline.judge.model.unigrams import VOCABULARY
from tests.gate_models.judge.fake import FakeModel


@pytest.mark.parametrize(
    ("text", "share"),
    [("A dog runs on the beach.", 0.0), ("The dog and the dogs watch a dog.", 0.5), ("on the of", 0.0), ("", 0.0)],
)
def test_repeated_content_words(text: str, share: float) -> None:
    assert repeated(text) == pytest.approx(share)


def test_figures_of_surprisals_leave_the_first_token_out() -> None:
    nats = np.array([20.0, 1.0, 7.0, 2.0], np.float32)
    frequency = np.full(VOCABULARY, 5.0, np.float32)
    features = features_of("a b b d", Surprisals(np.arange(4, dtype=np.int32), nats), frequency)
    assert set(features) == set(FEATURES) == set(SAID)
    assert features["mean"] == pytest.approx(10 / 3)
    assert features["max"] == 7.0
    assert features["slor"] == pytest.approx(5 - 10 / 3)
    assert features["lowest_slor"] == -2.0
    assert features["surprising"] == 1.0
    assert features["adjacent"] == 1.0


def test_every_text_has_a_row_of_finite_figures() -> None:
    seen = matrix(["A dog.", "", "Word", "the the the the the the"], FakeModel())
    assert seen.shape == (4, len(FEATURES))
    assert np.isfinite(seen).all()
