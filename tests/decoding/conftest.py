from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from tests.decoding.tiny import tiny_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model() -> MiniModel:
    return tiny_model()


@pytest.fixture
def engine(model: MiniModel) -> Iterator[Engine]:
    """A started engine in invariant mode."""
    with Engine(model, runner=Runner(model, invariant=True)) as running:
        yield running
