"""`astargate gate train`: a census becomes the gates of its families, one artifact a family."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from gate_models.features import vector
from gate_models.features.argmax_fill import TextReader
from gate_models.forest.heads import FateHeadEstimator, OrdinalHead
from gate_models.forest.value_head import PRICES, ValueHead
from gate_models.gates.learned import artifact
from gate_models.gates.learned.bundle import FateHead, GateBundle, HorizonHead
from gate_models.gates.learned.regime import AuditedRegime
from gate_models.offline.census.records import Census
from gate_models.offline.census.store import load_census
from gate_models.offline.gate_training.dataset import (
    SPLITS,
    FamilyData,
    TrainingRows,
    families_of,
    family_data,
    rows_of,
)
from gate_models.offline.gate_training.settings import GateTrainSettings
from gate_models.offline.gate_training.value_fit import fit_head, induce
from gate_models.offline.runs.versions import software
from gate_models.statistics.fixed_sequence import FixedSequenceTest, Setting

MIN_HORIZONS: Final = 10
"""Training prompts with a horizon below which no ordinal head is fitted."""
RISK_PRICE: Final = 0.002
"""Price of a row at which the risk ladder's settings decide until the earliest checkpoint is certified."""


def train(
    folder: Path,
    out: Path,
    settings: GateTrainSettings,
    *,
    families: Iterable[str] | None = None,
    model: str | None = None,
) -> list[GateBundle]:
    """Train the gates of a census in `folder` and write them under `out`, one subfolder a family.

    `model` (default: the census's) is loaded for its tokenizer. Raises `ValueError` where it is not the census's model,
    a named family is missing, or a family lacks what gates need.
    """
    census = load_census(folder, heavy=False)
    loaded = load_model(model or str(census.manifest["model"]))
    if loaded.spec.hash != census.manifest["model_hash"]:
        raise ValueError(
            f"the census in {folder} was made with model {census.manifest['model_hash']}, '{loaded.spec.name}' is "
            f"{loaded.spec.hash}; give the model that it was made with, or run the census again"
        )
    known = families_of(census)
    wanted = list(known) if families is None else list(families)
    if missing := [family for family in wanted if family not in known]:
        raise ValueError(f"the census has no family {', '.join(missing)}; it has {', '.join(known)}")
    bundles = []
    for family in (bar := tqdm(wanted, unit="family")):
        bar.set_description(family)
        data = family_data(census, known[family], TextReader.of(loaded.spec, loaded.codec), loaded.spec.hash)
        bundle = train_family(data, census, loaded, settings)
        artifact.save(bundle, out / family)
        bundles.append(bundle)
    return bundles


def train_family(data: FamilyData, census: Census, model: DenoisingModel, settings: GateTrainSettings) -> GateBundle:
    """All heads of one family from its training prompts, and the risk ladders from its calibration prompts."""
    train_prompts = data.of("train")
    rows = rows_of(data, whole=False, splits=("train",))
    values: dict[int, ValueHead] = {}
    notes: list[str] = []
    runs = data.main_run()[train_prompts]
    for width in data.widths:
        try:
            induction = induce(data, width, runs[runs >= 0], settings.seed, settings.jobs)
        except ValueError as error:
            notes.append(str(error))
            continue
        values[width] = fit_head(induction, settings.seed, max(1, settings.trees // 2), settings.jobs)
    bundle = GateBundle(
        regime=AuditedRegime.at(data.regime, data.widths),
        model=model.spec.name,
        version="",
        checkpoints=data.checkpoints,
        constants={width: constant_cut(data, width) for width in data.widths},
        fates=_fates(rows, settings),
        horizons=_horizons(rows.of(np.isfinite(rows.horizon)), settings),
        values=values,
        risk_tests={width: ladder(data, width, head) for width, head in values.items()},
        evidence=_evidence(data, census, settings, notes),
    )
    return replace(bundle, version=_version(bundle))


def constant_cut(data: FamilyData, width: int) -> float | None:
    """The paper's family cut: the checkpoint of highest base success over the training prompts, the earliest of equals.

    None (`never`) for a family none of whose training prompts has a horizon.
    """
    train_prompts = data.of("train")
    if not np.isfinite(data.a_star[train_prompts]).any():
        return None
    curve = np.nanmean(data.base[width][train_prompts], axis=0)
    return data.checkpoints[int(np.nanargmax(curve))]


def _fates(rows: TrainingRows, settings: GateTrainSettings) -> FateHead | None:
    """The causal fate head: one forest over all checkpoints."""
    if np.unique(rows.fate).size < 2:
        return None
    head = FateHeadEstimator(settings.trees, rows.leaf, settings.seed, settings.jobs).fit(rows.features, rows.fate)
    return FateHead(tuple(str(name) for name in head.classes_), head.flat().rounded())


def _horizons(rows: TrainingRows, settings: GateTrainSettings) -> HorizonHead | None:
    """The causal ordinal head, on rows of prompts that have a horizon."""
    if np.unique(rows.group).size < MIN_HORIZONS:
        return None
    head = OrdinalHead(settings.trees, rows.leaf, random_state=settings.seed, n_jobs=settings.jobs)
    head.fit(rows.features, rows.horizon)
    first, second, third = (float(edge) for edge in head.edges_)
    return HorizonHead(head.flat().rounded(), head.shift, (first, second, third))


def risk_settings(checkpoints: Iterable[float]) -> list[Setting]:
    """The fixed order of the risk ladder: from the latest checkpoint to the earliest, then dearer rows."""
    ordered = sorted(checkpoints, reverse=True)
    dearer = [(ordered[-1], price) for price in PRICES if price > RISK_PRICE]
    return [(fraction, RISK_PRICE) for fraction in ordered] + dearer


def ladder(data: FamilyData, width: int, head: ValueHead) -> FixedSequenceTest:
    """Every risk setting on the calibration prompts: loss = V at the handoff, 0 without one (intention-to-treat)."""
    prompts = data.of("calibrate")
    prompts = prompts[np.isfinite(data.value(width)[prompts]).all(1) & (data.main_run()[prompts] >= 0)]
    runs = data.main_run()[prompts]
    count, points = runs.size, len(data.checkpoints)
    features = data.features[runs].reshape(count * points, -1)
    predicted = head.predict(features)
    value = data.value(width)[prompts]
    tested = []
    for earliest, price in risk_settings(data.checkpoints):
        stop = head.advantage(predicted, price).reshape(count, points) <= 0.0
        stop &= np.array(data.checkpoints) >= earliest
        tested.append(((earliest, price), handoff_losses(stop, value)))
    return FixedSequenceTest.calibrate(tested)


def handoff_losses(stop: NDArray[np.bool_], value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Loss [n]: V at the first checkpoint where `stop` [n, J] holds, 0 where none does."""
    first = stop.argmax(1) if stop.size else np.zeros(len(stop), dtype=np.int64)
    losses: NDArray[np.float64] = np.where(stop.any(1), value[np.arange(len(stop)), first], 0.0)
    return losses


def _evidence(data: FamilyData, census: Census, settings: GateTrainSettings, notes: list[str]) -> dict[str, Any]:
    trained = data.of("train")
    horizons = data.a_star[trained][np.isfinite(data.a_star[trained])]
    return {
        "census": {name: census.manifest.get(name) for name in ("model", "model_hash", "seed", "code", "settings")},
        "task": data.task,
        "prompts": {split: int((data.split == split).sum()) for split in SPLITS},
        "runs": int(np.isin(data.prompt, trained).sum()),
        "weights": sorted({float(weight) for weight in data.run_weight}),
        "rollouts": float(np.median(data.count)),
        "fates": dict(Counter(str(fate) for fate in data.fate[trained])),
        "horizons": {
            "prompts": int(horizons.size),
            "median": float(np.median(horizons)) if horizons.size else None,
        },
        "guided": float(np.nanmean(data.guided[trained])),
        "base": {str(w): np.nanmean(data.base[w][trained], axis=0).round(4).tolist() for w in data.widths},
        "seed": settings.seed,
        "trees": settings.trees,
        "data_hash": data.data_hash,
        "software": software(),
        "notes": notes,
    }


def _version(bundle: GateBundle) -> str:
    """Twelve digits: the feature schema, the training data, the seed and the number of trees."""
    evidence = bundle.evidence
    named = (vector.SCHEMA, evidence["data_hash"], evidence["seed"], evidence["trees"], bundle.regime.model_hash)
    return hashlib.sha256(repr(named).encode()).hexdigest()[:12]
