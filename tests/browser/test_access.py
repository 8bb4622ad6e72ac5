"""Everybody can use it: keyboard, screen reader, both themes, narrow screens."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import finished, generate, opened

THEMES = ("light", "dark")
VIEWS = ("generate", "committor", "gates")


def violations(page):
    """What axe-core finds, short enough to read."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return json.dumps(
        [(item["id"], [(node["html"][:160], node["any"][:1]) for node in item["nodes"][:3]]) for item in violations],
        indent=1,
    )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(browser, server, theme, view):
    with opened(browser, server.url, view, color_scheme=theme) as (page, watch):
        if view == "generate":
            page.select_option("#pace", "0")
            page.check("#compare")
            generate(page, runs=2)
            for summary in page.locator("summary").all():
                summary.click()
        page.wait_for_timeout(500)  # the ticks fade in, and faded text has less contrast
        assert violations(page) == "[]"
        watch.clean()


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_in_an_error_and_in_the_key_dialog(browser, server, theme):
    with opened(browser, server.url, color_scheme=theme) as (page, watch):
        page.get_by_label("Steps T").fill("0")
        page.get_by_role("button", name="Generate").click()
        page.locator(".field-error").wait_for()
        assert violations(page) == "[]"
        page.locator("#key-button").click()
        assert violations(page) == "[]"
        watch.clean(refusals=1)


def test_the_theme_button_wins_over_the_system_and_is_kept(browser, server):
    with opened(browser, server.url, color_scheme="light") as (page, _):
        paper = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(paper)
        button = page.locator("#theme-button")
        button.click()
        button.click()
        assert button.inner_text() == "Theme: dark"
        dark = page.evaluate(paper)
        assert dark != light
        page.reload()
        page.wait_for_selector("body[data-ready]")
        assert page.evaluate(paper) == dark


def test_the_keyboard_is_enough(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.locator("#tab-generate").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "tab-committor"
        assert page.locator("#panel-committor").is_visible()
        page.keyboard.press("End")
        assert page.locator("#panel-gates").is_visible()
        page.keyboard.press("Home")
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "document.activeElement.name || document.activeElement.id || document.activeElement.textContent"
                )
            )
            if (
                page.evaluate("document.activeElement.textContent") == "Generate"
                and page.evaluate("document.activeElement.type") == "submit"
            ):
                break
        assert {"prompt", "constraint.keywords", "policy.tail_width", "seed"} <= reached
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        finished(page)
        page.locator("[name=prompt]").focus()
        page.keyboard.press("Control+Enter")
        page.wait_for_function("() => !document.querySelector('.run .state[data-phase=done]')")
        finished(page)
        watch.clean()


def test_the_live_region_speaks_twice_a_run(browser, server):
    with opened(browser, server.url) as (page, _):
        page.evaluate(
            """() => {
              const live = document.getElementById("live");
              window.said = [];
              new MutationObserver(() => said.push(live.textContent)).observe(live, { childList: true });
            }"""
        )
        page.select_option("#pace", "0")
        generate(page)
        page.wait_for_function("() => said.length >= 2")
        assert len(page.evaluate("said")) == 2


@pytest.mark.parametrize("view", VIEWS)
def test_a_narrow_screen_needs_no_sideways_scrolling(browser, server, view):
    with opened(browser, server.url, view, viewport={"width": 360, "height": 740}) as (page, watch):
        if view == "generate":
            page.select_option("#pace", "0")
            page.check("#compare")
            generate(page, runs=2)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        watch.clean()


def test_reduced_motion_is_respected(browser, server):
    with opened(browser, server.url, reduced_motion="reduce") as (page, _):
        assert page.locator("#pace").input_value() == "0"
        generate(page)
        assert page.evaluate("document.getAnimations().length") == 0


def test_the_page_carries_a_strict_policy(server):
    page = server.client.get("/")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert " style=" not in page.text
    assert " on" + "click=" not in page.text
    asset = server.client.get("/playground/js/main.js")
    assert asset.headers["content-security-policy"] == page.headers["content-security-policy"]
    assert server.client.get("/playground/%2e%2e/app.py").status_code == 404
    assert (
        server.client.get("/playground/js/main.js", headers={"If-None-Match": asset.headers["etag"]}).status_code == 304
    )
