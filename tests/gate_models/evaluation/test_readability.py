"""`readable` and `accepted` beside success: what they count, and what happens without the judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate_models.offline.evaluation import readability, run
from gate_models.offline.evaluation.readability import Readability
from gate_models.offline.evaluation.settings import EvaluateSettings
from gate_models.offline.judge.model import language_model
from gate_models.offline.judge.model.features import FEATURES
from gate_models.offline.judge.model.judge import Judge
from gate_models.offline.judge.model.language_model import MissingExtraError
from gate_models.offline.judge.model.weights import Weights
from gate_models.offline.runs.result_file import table
from tests.gate_models.judge.fake import FakeModel
from tests.shipped import mini

SHORT, LONG = "A dog runs.", "Incomprehensibilities notwithstanding uncharacteristically."
SETTINGS = EvaluateSettings(tasks=("commongen-k3",), policies=("base",), n=2, canvas=8)


def lover_of_short_words() -> Readability:
    """Its threshold lies between the two texts."""
    size = len(FEATURES)

    def judge(threshold: float) -> Judge:
        weights = Weights(FEATURES, (0.0,) * size, (1.0,) * size, (-0.2,) * size, 2.0, threshold)
        return Judge(weights, FakeModel(), {"references_readable": 0.8})

    short, long = judge(0.5).probabilities([SHORT, LONG])
    assert short > long
    return Readability(judge(float(short + long) / 2))


def test_accepted_is_readable_with_its_constraint_met() -> None:
    samples = [
        {"text": SHORT, "satisfied": True},
        {"text": SHORT, "satisfied": False},
        {"text": LONG, "satisfied": True},
        {"text": "", "satisfied": True},
    ]
    figures = lover_of_short_words().figures(samples)
    assert figures["readable"] == pytest.approx(2 / 4)
    assert figures["accepted"] == pytest.approx(1 / 4)
    low, high = figures["accepted_interval_95"]
    assert low < 1 / 4 < high


def test_a_run_has_both_and_texts_by_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "load_model", lambda *_, **__: mini())
    monkeypatch.setattr(readability.Readability, "load", lambda *_: lover_of_short_words())
    result = run.run(SETTINGS, tmp_path / "result.json")
    row = result["tasks"]["commongen-k3"]["policies"]["base"]
    assert 0 <= row["accepted"] <= min(row["success"], row["readable"])
    assert result["judge"]["texts_by_people"]["samples"] == 300
    assert "| texts by people | - | - | - |" in capsys.readouterr().out


def test_without_the_judge_the_columns_are_empty() -> None:
    assert Readability.load("off") is None
    row = {"success": 1.0, "success_interval_95": [0.9, 1.0], "adjacent_repeat_rate": 0.0, "mean_words": 3.0,
           "distinct_2": 1.0, "rows_per_sample": 4.0, "full_cfg_equivalent": 8.0, "tokens_per_sample": 10.0,
           "seconds_per_sample": 0.1}  # fmt: skip
    assert "| base | 1.000 | 0.90-1.00 | - | - | - |" in table("some", {"base": row})


def test_without_the_extra_auto_goes_on_and_on_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "NEEDED", ("no_such_package",))
    assert Readability.load("auto") is None
    with pytest.raises(MissingExtraError, match="pip install"):
        Readability.load("on")


def test_another_word_for_the_judge_is_refused() -> None:
    with pytest.raises(ValueError, match="one of: auto, on, off"):
        EvaluateSettings(tasks=("commongen",), policies=("base",), judge="yes")
