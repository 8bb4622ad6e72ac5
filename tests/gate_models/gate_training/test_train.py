"""A census becomes gates: what a user runs, on a tiny random model."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from decoding.models.registry import load_model
from decoding.policy.gate import GateSettings
from gate_models.features import vector
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantGates
from gate_models.gates.learned import artifact
from gate_models.gates.resolver import LearnedGates
from gate_models.offline.census import run as census
from gate_models.offline.census.plan import plan
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.store import load_census, write_shard
from gate_models.offline.census.worker import decode_items
from gate_models.offline.gate_training.dataset import families_of, family_data
from gate_models.offline.gate_training.settings import GateTrainSettings
from gate_models.offline.gate_training.train import constant_cut, train
from gate_models.offline.runs.result_file import write_json
from tests.decoding.tiny import tiny_model
from tests.gate_models import synthetic_gates as gates
from tests.gate_models.checkpoint import save_tiny

SETTINGS = CensusSettings(
    subtasks=("ifeval-no-comma",),
    prompts=45,
    rollouts=2,
    repeats=2,
    extra_weights=(0.0, 1.0),
    grid=(0.1, 0.3, 0.6),
    extra_grid=(0.8,),
    tail_widths=(1, 4),
    gen_length=8,
    steps=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A census of a tiny model whose checkpoint stays on disk."""
    root = tmp_path_factory.mktemp("census")
    model = load_model(str(save_tiny(root / "model")))
    out = root / "run"
    for start, item in enumerate(plan(SETTINGS, census.read_done(out, SETTINGS))):
        runs, cells, _ = decode_items(model, SETTINGS, (item,), lambda rows: None)
        write_shard(out, f"shard{start}", [run.row() for run in runs], cells)
    named = {"model": str(root / "model"), "model_hash": model.spec.hash}
    write_json(out / "manifest.json", {**named, "seed": SETTINGS.seed, "settings": asdict(SETTINGS)})
    return out


def test_training_data_come_from_the_census(folder):
    census = load_census(folder)
    model = load_model(census.manifest["model"])
    assert families_of(census) == {"ifeval-no-comma": "ifeval-no-comma"}
    data = family_data(census, "ifeval-no-comma", TextReader.of(model.spec, model.codec), model.spec.hash)
    assert data.at.tolist() == [1, 2, 5, 6]
    assert data.widths == (1, 4)
    assert data.features.shape == (45 * 3, 4, len(vector.NAMES))  # two runs at w = 2, one at 1; w = 0 teaches nothing
    assert sorted(set(data.run_weight)) == [1.0, 2.0]
    prompt = census.of("ifeval-no-comma")[7]
    row = data.prompts.index(prompt.key[1])
    cells = prompt.freeze(census.main_run, "base-k4")
    assert data.base[4][row].tolist() == [cell.rate for cell in cells]
    assert data.value(4)[row].tolist() == (data.guided[row] - data.base[4][row]).tolist()
    assert data.main_run()[row] == next(i for i in np.flatnonzero(data.main) if data.prompt[i] == row)
    again = load_census(folder, heavy=False)
    light = family_data(again, "ifeval-no-comma", TextReader.of(model.spec, model.codec), model.spec.hash)
    assert (light.features == data.features).all()


def test_one_command_trains_gates_that_serve(folder, tmp_path):
    settings = GateTrainSettings(trees=20)
    (bundle,) = train(folder, tmp_path, settings)
    loaded = artifact.load(tmp_path / "ifeval-no-comma")
    assert loaded.version == bundle.version
    assert loaded.regime.fixed["temperature"] == 1.0
    assert set(loaded.values) == {1, 4}
    assert loaded.evidence["prompts"]["train"] >= 12
    (repeated,) = train(folder, tmp_path / "again", settings)
    for name in (artifact.DESCRIPTION, artifact.ARRAYS):
        same = [(root / "ifeval-no-comma" / name).read_bytes() for root in (tmp_path, tmp_path / "again")]
        assert same[0] == same[1]
    assert repeated.version == bundle.version
    model = load_model(str(load_census(folder).manifest["model"]))
    resolver = LearnedGates([loaded], ConstantGates(()), TextReader.of(model.spec, model.codec))
    regime = gates.regime(model.spec.hash, "ifeval-no-comma", 8)
    assert resolver.resolve(GateSettings("value"), regime).gate is not None
    assert resolver.resolve(GateSettings("value"), replace(regime, tail_width=8)).gate is None


def test_wrong_models_and_families_are_refused(folder, tmp_path):
    other = save_tiny(tmp_path / "other", tiny_model(3))
    with pytest.raises(ValueError, match="give the model that it was made with"):
        train(folder, tmp_path, GateTrainSettings(), model=str(other))
    with pytest.raises(ValueError, match="no family ccg-length"):
        train(folder, tmp_path, GateTrainSettings(), families=["ccg-length"])


def test_the_constant_is_the_argmax_to_the_last_checkpoint_and_never_without_survivors():
    data = gates.family_data()
    curve = data.base[1][data.of("train")].mean(0)
    assert constant_cut(data, 1) == data.checkpoints[int(curve.argmax())]
    assert constant_cut(replace(data, a_star=np.full_like(data.a_star, np.nan)), 1) is None
