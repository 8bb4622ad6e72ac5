from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.browser import chromium
from tests.service.postgres import unavailable
from tests.service.process import ServerProcess


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """One server for every browser test. Unlike the common one it reuses keys and values where it is asked to."""
    process = ServerProcess(tmp_path_factory.mktemp("server") / "log")
    try:
        yield process.wait_for(200)
    finally:
        code = process.stop()
    assert code == 0


@pytest.fixture(scope="module")
def browser():
    """Of one module: an open Playwright keeps an event loop running, in which no other test could start one."""
    if find_spec("playwright") is None:
        unavailable("Playwright is not installed (pip install '.[browser]')")
    from playwright.sync_api import sync_playwright

    path = chromium.installed()
    if path is None:
        unavailable("Chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        running = chromium.launch(playwright, path)
        yield running
        running.close()
