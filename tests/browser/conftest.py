from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.browser import chromium
from tests.service.postgres import unavailable


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
