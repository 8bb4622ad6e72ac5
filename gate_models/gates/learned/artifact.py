"""Learned gates on disk: a folder for each family, with plain arrays and JSON, never pickle.

`gate.json` names the model's hash, the family, the feature schema, the hash of the training data and the audited
regime; it carries the digest of every array and, last, of itself. A gate that was changed after training, that was
made for another feature schema or in another format is refused with the reason; whether it fits the model is for the
resolver to say (contract 7).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.features import vector
from gate_models.forest.flat import FlatForest
from gate_models.forest.value_head import ValueHead
from gate_models.gates.learned.bundle import FateHead, GateBundle, HorizonHead
from gate_models.gates.learned.regime import RANGED, AuditedRegime
from gate_models.statistics.fixed_sequence import FixedSequenceTest

FORMAT: Final = 1
DESCRIPTION: Final = "gate.json"
ARRAYS: Final = "arrays.npz"


class ArtifactError(ValueError):
    """A gate that must not be used; the message says why and what to do."""


def save(bundle: GateBundle, folder: Path) -> None:
    """Write a gate; an older one in `folder` is replaced."""
    arrays: dict[str, NDArray[Any]] = {}
    content: dict[str, Any] = {
        "format": FORMAT,
        "schema": vector.SCHEMA,
        "features": list(vector.NAMES),
        "model": bundle.model,
        "version": bundle.version,
        "regime": bundle.regime.to_json(),
        "checkpoints": list(bundle.checkpoints),
        "constants": {str(width): cut for width, cut in bundle.constants.items()},
        "fates": None,
        "horizons": None,
        "values": {str(width): list(head.prices) for width, head in bundle.values.items()},
        "ladders": {str(width): test.to_json() for width, test in bundle.risk_tests.items()},
        "evidence": dict(bundle.evidence),
    }
    if bundle.fates is not None:
        content["fates"] = list(bundle.fates.classes)
        arrays |= bundle.fates.forest.arrays("fates")
    if bundle.horizons is not None:
        content["horizons"] = {"shift": bundle.horizons.shift, "edges": list(bundle.horizons.edges)}
        arrays |= bundle.horizons.forest.arrays("horizons")
    for width, head in bundle.values.items():
        arrays |= head.forest.arrays(f"value{width}")
    content["arrays"] = {name: _digest(array) for name, array in sorted(arrays.items())}
    content["digest"] = _content_digest(content)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / ARRAYS, **arrays)  # type: ignore[arg-type]
    (folder / DESCRIPTION).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> GateBundle:
    """Read a gate. Raises `ArtifactError` where it is damaged, was changed, or is of another format or schema."""
    try:
        bundle = _loaded(folder)
        _try(bundle)
        return bundle
    except ArtifactError:
        raise
    except Exception as error:  # a damaged file may make a parser raise anything
        raise ArtifactError(f"{folder}: is damaged: {type(error).__name__}: {error}") from None


def _loaded(folder: Path) -> GateBundle:
    content = _description(folder)
    if content.get("format") != FORMAT:
        raise ArtifactError(
            f"{folder}: format {content.get('format')} is not {FORMAT}, which this version reads; train the gate again "
            "(astargate gate train)"
        )
    if content.get("digest") != _content_digest(content):
        raise ArtifactError(f"{folder / DESCRIPTION}: was changed after training; restore it or train the gate again")
    if content["schema"] != vector.SCHEMA:
        raise ArtifactError(
            f"{folder}: is outdated: trained on features {content['schema']}, this version computes "
            f"{vector.SCHEMA}; train the gate again (astargate gate train)"
        )
    arrays = _arrays(folder, content["arrays"])
    return _bundle(content, arrays)


def load_all(folder: Path) -> tuple[list[GateBundle], list[tuple[str, str]]]:
    """Every gate in the subfolders of `folder`, and (subfolder, reason) of those that are refused. Empty without it."""
    bundles: list[GateBundle] = []
    refused: list[tuple[str, str]] = []
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        try:
            bundles.append(load(path.parent))
        except ArtifactError as error:
            refused.append((path.parent.name, str(error)))
    return bundles, refused


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: is not a JSON object")
    return content


def _arrays(folder: Path, digests: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """The arrays, each as it was when the gate was trained. Raises `ArtifactError`."""
    path = folder / ARRAYS
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except Exception as error:  # of zipfile, zlib and numpy: zlib.error, NotImplementedError, RuntimeError ...
        raise ArtifactError(f"{path}: cannot be read: {type(error).__name__}: {error}") from None
    if arrays.keys() != digests.keys() or any(_digest(array) != digests[name] for name, array in arrays.items()):
        raise ArtifactError(f"{path}: does not belong to its {DESCRIPTION}; restore both or train the gate again")
    return arrays


def _bundle(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> GateBundle:
    horizons = content["horizons"]
    return GateBundle(
        regime=AuditedRegime.from_json(content["regime"]),
        model=content["model"],
        version=content["version"],
        checkpoints=tuple(content["checkpoints"]),
        constants={int(width): cut for width, cut in content["constants"].items()},
        fates=FateHead(tuple(content["fates"]), FlatForest.restore(arrays, "fates")) if content["fates"] else None,
        horizons=HorizonHead(FlatForest.restore(arrays, "horizons"), horizons["shift"], tuple(horizons["edges"]))
        if horizons
        else None,
        values={
            int(width): ValueHead(FlatForest.restore(arrays, f"value{width}"), tuple(prices))
            for width, prices in content["values"].items()
        },
        risk_tests={int(width): FixedSequenceTest.from_json(test) for width, test in content["ladders"].items()},
        evidence=content["evidence"],
    )


def _try(bundle: GateBundle) -> None:
    """Ask every part of a gate once, so that a damaged one fails here and not in a request."""
    row = np.zeros((1, len(vector.NAMES)), dtype=np.float32)
    for low, high in (getattr(bundle.regime, name) for name in RANGED):
        if not 0.0 <= float(low) <= float(high):
            raise ValueError(f"{low} to {high} is no range")
    for width in bundle.regime.tail_widths:
        asked = bundle.regime.lowest(width)
        bundle.regime.differences(asked)
        bundle.regime.nearest(asked)
    for cut in (*bundle.checkpoints, *bundle.constants.values()):
        if cut is not None and not 0.0 <= cut <= 1.0:
            raise ValueError(f"{cut} is no fraction of the steps")
    if bundle.fates is not None:
        bundle.fates.predict(row)
    if bundle.horizons is not None:
        bundle.horizons.upper_edge(bundle.horizons.predict(row))
    for head in bundle.values.values():
        head.predict(row)


def _digest(array: NDArray[Any]) -> str:
    shape = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(shape + np.ascontiguousarray(array).tobytes()).hexdigest()


def _content_digest(content: Mapping[str, Any]) -> str:
    signed = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(signed, sort_keys=True).encode()).hexdigest()
