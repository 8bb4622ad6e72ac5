"""Loads a model by its name, folder or hub id; a checkpoint's config.json names the architecture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import torch

from decoding.models import dream, hub, llada
from decoding.models.bert_mini import int8 as bert_mini_int8
from decoding.models.bert_mini.network import SCALES, load_mini
from decoding.models.checkpoint import CheckpointError, json_object
from decoding.models.generation import read_generation_config
from decoding.models.protocol import DenoisingModel
from decoding.models.transformer.quantization import check_quantization

DType = Literal["float32", "bfloat16", "float16"]
DTYPES: Final[dict[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Loader = Callable[..., DenoisingModel]
LOADERS: Final[dict[str, Loader]] = {"llada": llada.load_llada, "Dream": dream.load_dream}
"""Loaders of published architectures by `model_type`; `mini` (architecture "bert_mini") is our own."""
SUPPORTED: Final = "mini (bert_mini), LLaDA-8B and LLaDA-1.5 (model_type llada), Dream-7B (model_type Dream)"


def shipped_model() -> Path:
    """Folder of the model that the package ships."""
    return Path(str(files("decoding.mini")))


def read_config(path: Path) -> dict[str, Any]:
    """The checkpoint's config.json. Raises `CheckpointError`."""
    try:
        return json_object(path / "config.json")
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{path / 'config.json'} does not exist; --model takes 'mini', a checkpoint folder or a hub id (owner/name)"
        ) from None


def parse_devices(text: str) -> list[torch.device]:
    """Devices by name; over several, joined by commas, the blocks of a model are spread. Raises `CheckpointError`."""
    devices = []
    for part in text.split(","):
        try:
            device = torch.device(part.strip())
        except RuntimeError:
            raise CheckpointError(
                f"device {part.strip()!r} is unknown; use cpu, cuda, cuda:0 or cuda:0,cuda:1"
            ) from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise CheckpointError(f"device {device} is not there: PyTorch sees {count} CUDA devices; use --device cpu")
        devices.append(device)
    return devices


def load_model(
    name_or_path: str = "mini", *, device: str = "cpu", dtype: str = "float32", quantization: str = "default"
) -> DenoisingModel:
    """Load `mini`, a checkpoint folder, or a hub id `owner/name[@revision]`, downloaded once.

    `quantization` "default" is 8 bits for mini in float32 on a CPU that has the instructions, and none otherwise.
    Raises `CheckpointError` with what to do.
    """
    if dtype not in DTYPES:
        raise CheckpointError(f"dtype {dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    devices = parse_devices(device)
    path = shipped_model() if name_or_path == "mini" else hub.local_folder(name_or_path)
    generation = read_generation_config(path)
    try:
        model = _load(path, name_or_path, devices, dtype, quantization)
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename} does not exist; the checkpoint folder is incomplete") from None
    model.spec = replace(model.spec, generation=generation)
    return model


def _load(
    path: Path, name_or_path: str, devices: Sequence[torch.device], dtype: str, quantization: str
) -> DenoisingModel:
    config = read_config(path)
    architecture = str(config.get("architecture") or config.get("model_type") or "")
    if architecture == "bert_mini":
        return _load_mini(path, devices, dtype, quantization)
    if architecture not in LOADERS:
        where = path / "config.json"
        raise CheckpointError(f"{where}: architecture {architecture!r} is not supported; supported: {SUPPORTED}")
    quantized = check_quantization("none" if quantization == "default" else quantization)
    name = name_or_path if hub.is_hub_id(name_or_path) else path.resolve().name
    return LOADERS[architecture](path, name=name, devices=devices, dtype=DTYPES[dtype], quantization=quantized)


def _load_mini(path: Path, devices: Sequence[torch.device], dtype: str, quantization: str) -> DenoisingModel:
    if len(devices) > 1:
        raise CheckpointError("mini runs on one device")
    if quantization not in ("default", "none", "int8"):
        raise CheckpointError(f"quantization {quantization!r} is not known to mini; use int8 or none")
    fitting = devices[0].type == "cpu" and dtype == "float32"
    if quantization == "int8" and not fitting:
        raise CheckpointError("mini is quantized from float32 on the CPU only; leave --device and --dtype out")
    model = load_mini(path, device=devices[0], dtype=DTYPES[dtype])
    wanted = quantization == "int8" or (
        quantization == "default" and fitting and bert_mini_int8.supported() and (path / SCALES).is_file()
    )
    return bert_mini_int8.in_int8(model, path) if wanted else model
