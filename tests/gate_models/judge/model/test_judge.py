"""The judge as a whole, with a language model of its own making."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gate_models.offline.judge.labels.sheet import Label, SheetText, append_label, text_id, write_sheet
from gate_models.offline.judge.model import language_model
from gate_models.offline.judge.model.features import FEATURES
from gate_models.offline.judge.model.judge import Judge
from gate_models.offline.judge.model.language_model import INSTALL, MissingExtraError
from gate_models.offline.judge.model.weights import Weights
from gate_models.offline.judge.validation import study
from service.cli import app
from tests.gate_models.judge.fake import FakeModel

GOOD = "A dog {} in the big yard."
BAD = "Extraordinarily {} {} unconstitutionality {} dog."
WORDS = [f"{a}{b}" for a in ("run", "sit", "eat", "nap", "dig") for b in ("s", "ly", "en", "ish", "al", "er")]


def judge(threshold: float = 0.5) -> Weights:
    size = len(FEATURES)
    return Weights(FEATURES, (0.0,) * size, (1.0,) * size, (-0.2,) * size, 2.0, threshold)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A sheet on which long words are broken."""
    texts = [
        SheetText(text_id(text), text, source, family, policy, "0123")
        for word in WORDS
        for text, source, family, policy in (
            (GOOD.format(word), "ours", "commongen-k3", "base T=1"),
            (BAD.format(word, word, word), "ours", "commongen-k4", "full_cfg:w2 T=1"),
            (f"People say the dog {word}.", "human", "tatoeba", "human"),
        )
    ]
    write_sheet(tmp_path / "sheet.jsonl", texts)
    for number in (1, 2):
        for text in texts:
            said = "broken" if text.text.startswith("Extra") else "clean"
            append_label(tmp_path / "labels.jsonl", Label(text.id, number, "me", said))
    return tmp_path / "sheet.jsonl"


def test_a_reading_does_not_depend_on_the_others() -> None:
    texts = ["A dog runs.", "Incomprehensibilities notwithstanding.", "", "  "]
    together = Judge(judge(), FakeModel()).readable(texts)
    alone = [Judge(judge(), FakeModel()).readable([text])[0] for text in texts]
    assert together == alone
    assert together[0].probability > together[1].probability
    assert [reading.probability for reading in together[2:]] == [0.0, 0.0]
    assert not together[2].readable


def test_the_threshold_decides() -> None:
    [reading] = Judge(judge(), FakeModel()).readable(["A dog runs."])
    assert Judge(judge(reading.probability), FakeModel()).readable(["A dog runs."])[0].readable
    assert not Judge(judge(reading.probability + 1e-6), FakeModel()).readable(["A dog runs."])[0].readable


def test_weights_for_other_features_are_refused() -> None:
    other = Weights(("length",), (0.0,), (1.0,), (1.0,), 0.0, 0.5)
    with pytest.raises(ValueError, match="other features"):
        Judge(other, FakeModel())


def test_a_study_writes_a_judge_that_agrees(labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "judge.json"
    report = study.run(sheet=labelled, out=out, cache=tmp_path / "judge.db", model=FakeModel())
    for heading in ("## Labels", "### By family", "### By policy", "## Text by people, whole and spoiled"):
        assert heading in report
    assert "| commongen-k4 | 30 | 0.000 |" in report
    learned = Judge.load(out, model=FakeModel())
    assert learned.facts["cross_validated"]["all texts"]["kappa"] > 0.9
    assert learned.facts["models_read"] == ["0123"]
    probabilities = learned.probabilities([GOOD.format("barks"), BAD.format("barks", "barks", "barks")])
    assert probabilities[0] > learned.learned.threshold > probabilities[1]


def test_a_sheet_that_is_not_read_to_its_end_is_refused(labelled: Path, tmp_path: Path) -> None:
    labels = labelled.with_name("labels.jsonl")
    kept = [line for line in labels.read_text().splitlines() if text_id(GOOD.format(WORDS[0])) not in line]
    labels.write_text("\n".join(kept) + "\n")
    with pytest.raises(ValueError, match="1 texts have no label yet"):
        study.run(sheet=labelled, out=tmp_path / "judge.json", model=FakeModel())


def test_another_language_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gate_models.offline.judge.model.judge.weights_hash", lambda: "cafe")
    judge().save(tmp_path / "judge.json", {"language_model": "0000"})
    with pytest.raises(ValueError, match="learned with language_model 0000, here is cafe"):
        Judge.load(tmp_path / "judge.json")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(language_model, "NEEDED", ("no_such_package", "gguf"))
    with pytest.raises(MissingExtraError, match=r"needs no-such-package.*pip install 'astargate\[judge\]'"):
        Judge.load()
    texts = tmp_path / "texts.txt"
    texts.write_text("A dog runs.\n")
    run = CliRunner().invoke(app, ["judge", str(texts)])
    assert run.exit_code == 2
    assert INSTALL in run.output.replace("\n", " ") or "astargate[judge]" in run.output


def test_the_shipped_sheet_is_read_to_its_end_and_blind() -> None:
    from gate_models.offline.judge.labels.sheet import read_labels, read_sheet
    from gate_models.offline.judge.model.files import artifact_folder
    from gate_models.offline.judge.validation.agreement import accepted, between_passes

    texts, labels = (
        read_sheet(artifact_folder() / "sheet.jsonl"),
        read_labels(artifact_folder() / "labels.jsonl"),
    )
    ours = [text for text in texts if text.source == "ours"]
    assert len(ours) >= 300
    assert len(texts) - len(ours) >= 60
    assert len({text.family for text in ours}) == 14
    assert len({text.policy for text in ours}) >= 10
    assert set(accepted(labels)) == {text.id for text in texts}
    assert all(agreed["kappa_accepted"] > 0.6 for agreed in between_passes(labels).values())
    assert np.mean([accepted(labels)[text.id] for text in texts if text.source == "human"]) > 0.9
