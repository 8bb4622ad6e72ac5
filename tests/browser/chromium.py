"""A headless Chromium and its pages, and what no page of ours may do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

TIMEOUT_MS = 600_000
"""Generous: other work may hold the machine."""


def installed() -> str | None:
    """Path of the system's Chromium; None where there is none."""
    return next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """Headless; without the sandbox, which root may not use."""
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


_ENDED = """runs => document.querySelectorAll(".run .state[data-phase=done]").length === runs
  || document.querySelector(".field-error, #form-error:not([hidden])")"""


@dataclass(slots=True)
class Watch:
    """What a page said and asked for."""

    console: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def clean(self, *, refusals: int = 0) -> None:
        """Nothing went wrong and nothing left the origin; `refusals` answers of the API were errors on purpose."""
        refused = [line for line in self.console if "Failed to load resource" in line]
        assert len(refused) == refusals, self.console
        assert [line for line in self.console if line not in refused] == []
        assert self.foreign == []


@contextmanager
def opened(browser: Browser, url: str, view: str = "generate", **options: Any) -> Iterator[tuple[Page, Watch]]:
    """A fresh page on the playground, ready; `options` are those of a browser context."""
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **options})
    context.set_default_timeout(TIMEOUT_MS)
    page, watch = context.new_page(), Watch()
    origin = urlsplit(url).netloc
    page.on("console", lambda line: watch.console.append(line.text) if line.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: watch.console.append(str(error)))
    page.on(
        "request",
        lambda request: watch.foreign.append(request.url) if urlsplit(request.url).netloc not in {origin, ""} else None,
    )
    try:
        page.goto(f"{url}/#{view}")
        page.wait_for_selector("body[data-ready]")
        yield page, watch
    finally:
        context.close()


def finished(page: Page, runs: int = 1) -> None:
    """Wait until every run on the page has been shown to its end."""
    page.wait_for_function(_ENDED, arg=runs, timeout=TIMEOUT_MS)
    refused = page.locator(".field-error, #form-error:not([hidden]), .run .note.bad").all_inner_texts()
    assert refused == []


def generate(page: Page, *, runs: int = 1) -> None:
    """Press Generate and see it through."""
    page.get_by_role("button", name="Generate").click()
    finished(page, runs)
