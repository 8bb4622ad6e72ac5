"""Sheets of texts to label: the policies that are named, and texts that say where they are from."""

from __future__ import annotations

import pytest

from gate_models.offline.evaluation.label_sheet import POLICIES, own_texts, read_policies
from gate_models.offline.judge.labels.sheet import text_id
from tests.decoding.tiny import tiny_model


def test_policies_have_temperatures() -> None:
    assert read_policies("base@0.6, full_cfg:w1:p0.1:conditional@1") == (
        *(("base", 0.6), ("full_cfg:w1:p0.1:conditional", 1.0)),
    )
    assert read_policies(",".join(f"{name}@{temperature:g}" for name, temperature in POLICIES)) == POLICIES


@pytest.mark.parametrize(("names", "says"), [("base", "base@0.6"), ("base@hot", "base@0.6"), ("bass@1", "bass")])
def test_what_cannot_be_read_is_refused(names: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_policies(names)


def test_each_text_is_of_another_prompt_and_says_its_policy() -> None:
    model = tiny_model()
    texts = list(own_texts(model, read_policies("base@0.6,full_cfg:w1@1"), ("commongen-k3",), count=3, seed=4))
    assert [text.policy for text in texts] == ["base T=0.6"] * 3 + ["full_cfg:w1 T=1"] * 3
    assert len({text.prompt for text in texts}) == 6
    for text in texts:
        assert (text.id, text.model, text.source, text.family) == (
            *(text_id(text.text), model.spec.hash, "ours", "commongen-k3"),
        )
        assert text.satisfied in (True, False)
