"""Gates on disk: what is loaded is what was saved; changed, foreign and outdated ones are refused with the reason."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

from gate_models.features import vector
from gate_models.gates import artifact
from gate_models.gates.artifact import ArtifactError
from tests.gate_models import synthetic_gates as gates


@pytest.fixture(scope="module")
def trained():
    return gates.bundle()


@pytest.fixture
def stored(trained, tmp_path):
    artifact.save(trained, tmp_path / "commongen-k3")
    return tmp_path / "commongen-k3"


def test_round_trip(trained, stored):
    loaded = artifact.load(stored)
    asked = np.random.default_rng(0).normal(size=(20, len(vector.NAMES))).astype(np.float32)
    for item in dataclasses.fields(trained):
        if item.name not in {"fates", "horizons", "values"}:
            assert getattr(loaded, item.name) == getattr(trained, item.name), item.name
    assert loaded.fates.predict(asked)[0] == trained.fates.predict(asked)[0]
    assert (loaded.horizons.predict(asked) == trained.horizons.predict(asked)).all()
    for width, head in trained.values.items():
        assert (loaded.values[width].predict(asked) == head.predict(asked)).all()


def test_nothing_is_pickled(stored):
    for path in stored.iterdir():
        with pytest.raises((pickle.UnpicklingError, UnicodeDecodeError, ValueError, KeyError, EOFError)):
            pickle.loads(path.read_bytes())
    with np.load(stored / artifact.ARRAYS, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fiu" for name in arrays.files)


def edit(stored, change):
    path = stored / artifact.DESCRIPTION
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["constants"].update({"1": 0.1}),
        lambda content: content["regime"].update(model_hash="another"),
        lambda content: content["regime"].update(steps=[1, 1000]),
        lambda content: content["ladders"]["1"].update(prompts=100_000),
        lambda content: content.pop("digest"),
    ],
)
def test_a_description_that_was_changed_is_refused(stored, change):
    edit(stored, change)
    with pytest.raises(ArtifactError, match="changed after training"):
        artifact.load(stored)


def test_arrays_that_were_changed_are_refused(stored, trained, tmp_path):
    with np.load(stored / artifact.ARRAYS) as found:
        arrays = {name: found[name] for name in found.files}
    arrays["value1.threshold"] = arrays["value1.threshold"] + np.float32(1e-3)
    np.savez_compressed(stored / artifact.ARRAYS, **arrays)
    with pytest.raises(ArtifactError, match="does not belong"):
        artifact.load(stored)
    (stored / artifact.ARRAYS).write_bytes(b"PK nonsense")
    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(stored)
    (stored / artifact.ARRAYS).unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(stored)


def test_objects_in_the_arrays_are_refused(stored):
    np.savez(stored / artifact.ARRAYS, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(stored)


def test_outdated_gates_are_refused_with_what_to_do(stored, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(vector, "SCHEMA", "0-older")
    artifact.save(trained, tmp_path / "older")
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=r"outdated.*astargate gate train"):
        artifact.load(tmp_path / "older")
    edit(stored, lambda content: content.update(format=0))
    with pytest.raises(ArtifactError, match=r"format 0.*train the gate again"):
        artifact.load(stored)


def test_a_folder_of_gates_keeps_the_good_ones(stored, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / artifact.DESCRIPTION).write_text("{")
    found, refused = artifact.load_all(tmp_path)
    assert [bundle.family for bundle in found] == ["commongen-k3"]
    assert [(folder, "cannot be read" in reason) for folder, reason in refused] == [("broken", True)]
    assert artifact.load_all(tmp_path / "nowhere") == ([], [])


def test_saving_twice_gives_equal_files(trained, tmp_path):
    for name in ("a", "b"):
        artifact.save(trained, tmp_path / name)
    for name in (artifact.DESCRIPTION, artifact.ARRAYS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
