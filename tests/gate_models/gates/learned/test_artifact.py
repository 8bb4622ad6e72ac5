"""Gates on disk: what is loaded is what was saved; changed, foreign and outdated ones are refused with the reason."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

from gate_models.features import vector
from gate_models.gates.learned import artifact
from gate_models.gates.learned.artifact import ArtifactError
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
    with np.load(stored / artifact.ARRAYS) as stored_arrays:
        arrays = {name: stored_arrays[name] for name in stored_arrays.files}
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
    bundles, refused = artifact.load_all(tmp_path)
    assert [bundle.family for bundle in bundles] == ["commongen-k3"]
    assert [(folder, "cannot be read" in reason) for folder, reason in refused] == [("broken", True)]
    assert artifact.load_all(tmp_path / "nowhere") == ([], [])


def zip_header(path, at, value):
    """Set a two-byte field of every local and central header of a zip file."""
    content = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        start = content.find(signature)
        while start >= 0:
            content[start + at + shift : start + at + shift + 2] = value.to_bytes(2, "little")
            start = content.find(signature, start + 4)
    path.write_bytes(content)


def test_damaged_arrays_are_refused_whatever_the_reader_raises(stored):
    """zlib, zipfile and numpy raise errors of many kinds; each names the file and stops nothing else."""
    path = stored / artifact.ARRAYS
    whole = path.read_bytes()
    damages = [lambda: zip_header(path, 8, 99), lambda: zip_header(path, 6, 1)]  # unknown method; encrypted
    rng = np.random.default_rng(5)
    for at in rng.integers(0, len(whole), 40):
        damages.append(lambda at=at: path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]))
        damages.append(lambda at=at: path.write_bytes(whole[:at]))
    refusals = []
    for damage in damages:
        path.write_bytes(whole)
        damage()
        bundles, refused = artifact.load_all(stored.parent)
        assert len(bundles) + len(refused) == 1  # a byte that no reader looks at damages nothing
        refusals += refused
    assert len(refusals) > len(damages) / 2
    assert all(str(stored) in reason for _, reason in refusals)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("schema"),
        lambda content: content.pop("arrays"),
        lambda content: content.update(arrays=[]),
        lambda content: content.pop("regime"),
        lambda content: content["regime"].pop("fixed"),
        lambda content: content["regime"].update(steps=["a", "b"]),
        lambda content: content["regime"].update(tail_widths=[None]),
        lambda content: content.update(checkpoints=["half"]),
        lambda content: content.update(checkpoints=3),
        lambda content: content["constants"].update({"one": 0.5}),
        lambda content: content.update(horizons={"shift": "a", "edges": []}),
        lambda content: content.update(ladders={"1": {}}),
    ],
)
def test_a_description_that_is_nonsense_is_refused_though_signed(stored, change):
    def signed(content):
        change(content)
        content["digest"] = artifact._content_digest(content)

    edit(stored, signed)
    bundles, refused = artifact.load_all(stored.parent)
    assert (bundles, len(refused)) == ([], 1)
    assert str(stored) in refused[0][1]


def test_a_description_that_is_nested_too_deeply_is_refused(stored):
    (stored / artifact.DESCRIPTION).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(stored)


def test_saving_twice_gives_equal_files(trained, tmp_path):
    for name in ("a", "b"):
        artifact.save(trained, tmp_path / name)
    for name in (artifact.DESCRIPTION, artifact.ARRAYS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
