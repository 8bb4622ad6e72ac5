"""Surprisals on disk: a known text costs no forward, and what comes back is what went in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gate_models.offline.judge.model.cache import Cached, text_hash
from tests.gate_models.judge.fake import FakeModel

TEXTS = ["A dog runs.", "Two cats sleep on the mat.", "A dog runs."]


def test_a_known_text_is_not_scored_again(tmp_path: Path) -> None:
    model = FakeModel()
    cached = Cached(model, tmp_path / "new" / "judge.db")
    first = cached.surprisals(TEXTS)
    assert sorted(model.seen) == sorted(set(TEXTS))
    again = Cached(model, tmp_path / "new" / "judge.db").surprisals([*TEXTS, "A bird sings."])
    assert model.seen[2:] == ["A bird sings."]
    plain = FakeModel().surprisals(TEXTS)
    for one, two, three in zip(first, again, plain, strict=False):
        assert np.array_equal(one.ids, three.ids)
        assert np.array_equal(two.ids, three.ids)
        assert np.array_equal(one.nats, three.nats)
        assert np.array_equal(two.nats, three.nats)


def test_another_model_has_entries_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "judge.db"
    Cached(FakeModel("one"), path).surprisals(TEXTS)
    other = FakeModel("two")
    Cached(other, path).surprisals(TEXTS)
    assert len(other.seen) == 2


def test_texts_that_are_scored_alike_share_an_entry() -> None:
    assert text_hash("a dog runs.") == text_hash(" A dog runs. ") != text_hash("A dog ran.")


def test_nothing_is_asked_for_no_text(tmp_path: Path) -> None:
    assert Cached(FakeModel(), tmp_path / "judge.db").surprisals([]) == []
