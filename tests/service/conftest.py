from __future__ import annotations

import pytest

from service.storage.database import open_database


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'astargate.db'}"
    return request.getfixturevalue("postgres").create()


@pytest.fixture
def database(database_url):
    """An empty database of each kind, open."""
    opened = open_database(database_url)
    yield opened
    opened.close()
