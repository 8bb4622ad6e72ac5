"""A safetensors checkpoint in one file or several: names, shapes and files first, tensors one at a time afterwards.

Layout: `model.safetensors.index.json` with a `weight_map` {tensor: file}, or a single `model.safetensors`. Only
safetensors is read: a pickle can run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoding.models.checkpoint import CheckpointError, check_tensors

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies and what its header says; nothing is loaded."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Shards:
    """All tensors of a checkpoint folder, by name."""

    folder: Path
    entries: Mapping[str, TensorEntry]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the weight files, sorted."""
        return tuple(sorted({entry.file.name for entry in self.entries.values()}))

    @property
    def source(self) -> Path:
        """The file that lists the tensors."""
        index = self.folder / INDEX
        return index if index.is_file() else self.folder / SINGLE

    @staticmethod
    def open(folder: Path) -> Shards:
        """Read index and headers. Raises `CheckpointError` naming the missing or damaged file, or the tensor."""
        index = folder / INDEX
        if index.is_file():
            return Shards(folder, _from_index(index))
        if (folder / SINGLE).is_file():
            return Shards(folder, _headers(folder / SINGLE))
        raise CheckpointError(f"{folder} has neither {INDEX} nor {SINGLE}; other formats (.bin, .gguf) are not read")

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Raise `CheckpointError` unless the checkpoint holds exactly the `expected` tensors, all floating point."""
        check_tensors(
            self.entries, expected, self.source, files={name: entry.file for name, entry in self.entries.items()}
        )
        for name, entry in self.entries.items():
            if entry.dtype not in _FLOATS:
                raise CheckpointError(
                    f"{entry.file}: tensor {name} has dtype {entry.dtype}; quantized checkpoints are not read"
                )

    def load(self, wanted: Mapping[str, torch.device], dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors named in `wanted`, each on its device, file by file so that a file is opened once."""
        loaded: dict[str, Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        for name in wanted:
            by_file.setdefault(self.entries[name].file, []).append(name)
        for file, names in sorted(by_file.items()):
            with safe_open(file, framework="pt") as reader:
                for name in names:
                    loaded[name] = reader.get_tensor(name).to(wanted[name], dtype)
        return loaded


def _from_index(index: Path) -> dict[str, TensorEntry]:
    weight_map = _weight_map(index)
    entries: dict[str, TensorEntry] = {}
    for name in sorted(set(weight_map.values())):
        file = index.parent / name
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} names {name!r}, which is not a safetensors file in the same folder")
        if not file.is_file():
            missing = sum(shard == name for shard in weight_map.values())
            raise CheckpointError(
                f"{file} does not exist but {index.name} places {missing} tensors in it; download it again"
            )
        for tensor, entry in _headers(file).items():
            if weight_map.get(tensor) != name:
                raise CheckpointError(f"{file} holds tensor {tensor}, which {index.name} does not place there")
            entries[tensor] = entry
    for tensor, name in weight_map.items():
        if tensor not in entries:
            raise CheckpointError(
                f"{index.parent / name} does not hold tensor {tensor}, which {index.name} places there"
            )
    return entries


def _weight_map(index: Path) -> dict[str, str]:
    try:
        listed = json.loads(index.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{index} is not JSON: {error}") from None
    weight_map = listed.get("weight_map") if isinstance(listed, dict) else None
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(name, str) for name in weight_map.values())
    ):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names")
    return weight_map


def _headers(file: Path) -> dict[str, TensorEntry]:
    try:
        with safe_open(file, framework="pt") as reader:
            views = {name: reader.get_slice(name) for name in reader.keys()}  # noqa: SIM118 - not a mapping
            return {
                name: TensorEntry(file, tuple(view.get_shape()), str(view.get_dtype())) for name, view in views.items()
            }
    except SafetensorError as error:
        raise CheckpointError(f"{file} is not a complete safetensors file ({error}); download it again") from None
