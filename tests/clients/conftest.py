from __future__ import annotations

import pytest

from astargate_client import Client


@pytest.fixture
def client(server):
    with Client(server.url, timeout=600) as made:
        yield made
