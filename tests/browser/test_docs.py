"""GET /docs runs under its content security policy."""

from __future__ import annotations

from tests.browser.chromium import TIMEOUT_MS


def test_the_documentation_opens_and_tries_a_request(browser, server):
    page, said = browser.new_page(), []
    page.set_default_timeout(TIMEOUT_MS)
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{server.url}/docs")
    page.locator("#operations-health-live_health_live_get").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    page.wait_for_selector(".live-responses-table .response")
    assert said == []
    page.close()
