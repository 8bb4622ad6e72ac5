from __future__ import annotations

import pytest

from astargate_client import Client
from tests.service.conftest import server, spawn  # noqa: F401  (fixtures)


@pytest.fixture
def client(server):  # noqa: F811
    with Client(server.url, timeout=120) as made:
        yield made
