"""One small random checkpoint of each architecture for the whole session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.models.tools.make_random import ARCHS, Arch, Size, make_random
from tests.decoding.models.reference import Reference

SMALL = Size(hidden=48, layers=3, heads=4, kv_heads=2, intermediate=80, context=192)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[Arch, Path]:
    return {arch: make_random(arch, tmp_path_factory.mktemp("random") / arch, seed=3, size=SMALL) for arch in ARCHS}


@pytest.fixture(params=ARCHS)
def arch(request: pytest.FixtureRequest) -> Arch:
    architecture: Arch = request.param
    return architecture


@pytest.fixture
def folder(checkpoints: dict[Arch, Path], arch: Arch) -> Path:
    return checkpoints[arch]


@pytest.fixture(scope="session")
def loaded(checkpoints: dict[Arch, Path]) -> dict[Arch, DenoisingModel]:
    return {arch: load_model(str(path)) for arch, path in checkpoints.items()}


@pytest.fixture
def model(loaded: dict[Arch, DenoisingModel], arch: Arch) -> DenoisingModel:
    return loaded[arch]


@pytest.fixture(scope="session")
def references(checkpoints: dict[Arch, Path]) -> dict[Arch, Reference]:
    return {arch: Reference(path) for arch, path in checkpoints.items()}


@pytest.fixture
def reference(references: dict[Arch, Reference], arch: Arch) -> Reference:
    return references[arch]


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a checkpoint that a test may damage."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))
