"""The Generate view, end to end: a real server, a real browser."""

from __future__ import annotations

import json
import re

from tests.browser.chromium import finished, generate, opened

MASKED = ".run .cell.mask"
COMMITTED = ".run .cell:not(.mask)"


def test_tokens_appear_one_by_one_and_the_result_is_judged(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.select_option("#pace", "300")
        page.get_by_label("Seed").fill("7")
        page.get_by_role("button", name="Generate").click()
        page.wait_for_selector(COMMITTED)
        seen = page.locator(COMMITTED).count()
        assert 0 < seen < 16
        assert page.locator(MASKED).count() > 0
        page.wait_for_function("seen => document.querySelectorAll('.run .cell:not(.mask)').length > seen", arg=seen)
        page.select_option("#pace", "0")
        finished(page)
        assert page.locator(COMMITTED).count() == 16
        assert page.locator(MASKED).count() == 0
        assert page.locator(".run .checks li").count() == 3
        cost = re.search(r"(\d+) of (\d+) forward evaluations", page.locator(".run .figures").inner_text())
        shown = server.generate(
            {
                "prompt": "Write one sentence.",
                "constraint": {"type": "keywords", "keywords": ["chef", "kitchen", "dinner"]},
                "policy": page.evaluate(_POLICY),
                "gen_length": 16,
                "seed": 7,
            }
        )["samples"][0]["forward_evaluations"]
        assert cost is not None
        assert [int(part) for part in cost.groups()] == [shown["total"], shown["full_cfg_equivalent"]]
        assert "forward evaluations" in page.locator("#live").inner_text()
        watch.clean()


def test_the_page_opens_with_what_a_request_without_a_policy_gets(browser, spawn):
    """No learned gate serves mini's own guidance, so the form names none."""
    process = spawn(defaults="model").wait_for(200)
    defaults = process.client.get("/v1/models").json()["data"][0]["defaults"]
    with opened(browser, process.url) as (page, watch):
        page.select_option("#pace", "0")
        page.get_by_label("Seed").fill("7")
        assert page.get_by_label("Temperature", exact=True).get_attribute("placeholder") == str(defaults["temperature"])
        generate(page)
        sent = page.evaluate(_POLICY)
        assert sent == {"preset": defaults["policy"]["preset"]}
        asked = {"prompt": "Write one sentence.", "gen_length": 16, "seed": 7}
        asked["constraint"] = {"type": "keywords", "keywords": ["chef", "kitchen", "dinner"]}
        cost = re.search(r"(\d+) of (\d+) forward evaluations", page.locator(".run .figures").inner_text())
        ledger = process.generate(asked)["samples"][0]["forward_evaluations"]
        assert cost is not None
        assert int(cost[1]) == ledger["total"]
        watch.clean()


_POLICY = """async () => {
  document.querySelectorAll('.run-details details')[1].open = true;
  await new Promise((done) => setTimeout(done, 50));
  const code = document.querySelectorAll('.run-details pre')[0].textContent;
  return JSON.parse(code.slice(code.indexOf("'{") + 1, -1)).policy;
}"""


def test_side_by_side_runs_use_one_seed_and_mark_the_handoff(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.select_option("#pace", "0")
        page.get_by_label("Gate", exact=True).select_option("fraction")
        page.check("#compare")
        generate(page, runs=2)
        assert page.locator(".run h2").all_inner_texts()[0] == "Full CFG"
        figures = page.locator(".run .figures").all_inner_texts()
        assert len({re.search(r"seed (\d+)", text)[1] for text in figures}) == 1
        full, ours = page.locator(".run").all()
        assert full.locator(".mark-at.handoff").count() == 0
        assert ours.locator(".mark-at.handoff").count() == 1
        assert full.locator(".cell.base").count() == 0
        assert ours.locator(".cell.base").count() > 0
        assert ours.locator(".cell.guided").count() > 0
        assert "fewer" in page.locator(".summary").inner_text()
        watch.clean()


def test_phases_differ_by_shape_not_colour_alone(browser, server):
    with opened(browser, server.url) as (page, _):
        lines = page.evaluate(
            """["guided", "base"].map((name) => {
              const cell = document.querySelector(`.cell.sample.${name}`);
              return getComputedStyle(cell, "::after").height;
            })"""
        )
        assert lines[0] != lines[1]


def test_the_slider_goes_back_in_time(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.select_option("#pace", "0")
        page.get_by_label("Gate", exact=True).select_option("never")
        generate(page)
        slider = page.locator(".scrub")
        slider.focus()
        page.keyboard.press("Home")
        assert page.locator(COMMITTED).count() == 0
        page.keyboard.press("ArrowRight")
        assert page.locator(COMMITTED).count() == 1
        assert slider.get_attribute("aria-valuetext") == "step 1, guided"
        watch.clean()


def test_errors_are_shown_at_their_field(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.get_by_label("Guidance w").fill("99")
        page.get_by_role("button", name="Generate").click()
        error = page.locator(".field-error")
        error.wait_for()
        wrong = page.get_by_label("Guidance w")
        assert "20" in error.inner_text()
        assert wrong.get_attribute("aria-invalid") == "true"
        assert error.get_attribute("id") in wrong.get_attribute("aria-describedby")
        assert page.evaluate("document.activeElement.name") == "policy.guidance_scale"
        wrong.fill("2")
        generate(page)
        assert page.locator(".field-error").count() == 0
        watch.clean(refusals=1)


def test_constraint_as_json(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.select_option("#pace", "0")
        page.get_by_role("button", name="JSON").click()
        area = page.get_by_label("Constraint as JSON")
        area.fill("{")
        page.get_by_role("button", name="Generate").click()
        page.locator(".field-error", has_text="not JSON").wait_for()
        area.fill('{"type": "word_count", "min_words": 3, "max_words": 12}')
        generate(page)
        assert "words" in page.locator(".run .checks").inner_text()
        watch.clean()


def test_every_example_of_the_server_is_taken(browser, server):
    """Each constraint type's fields give back the example that they were drawn from."""
    types = {entry["type"]: entry["example"] for entry in server.client.get("/v1/constraints").json()["data"]}
    sent = []

    def in_two_steps(route) -> None:
        sent.append(route.request.post_data_json)
        route.continue_(post_data=json.dumps({**sent[-1], "steps": 2}))

    with opened(browser, server.url) as (page, watch):
        page.route("**/generate", in_two_steps)
        page.select_option("#pace", "0")
        for kind in types:
            page.get_by_label("Constraint", exact=True).select_option(kind)
            generate(page)
        watch.clean()
    asked = {body["constraint"]["type"]: body["constraint"] for body in sent}
    assert asked == types


def test_every_preset_is_taken_as_it_is_offered(browser, server):
    presets = [entry["preset"] for entry in server.client.get("/v1/policies").json()["data"]]
    sent = []
    with opened(browser, server.url) as (page, watch):
        page.route("**/generate", lambda route: (sent.append(route.request.post_data_json), route.continue_())[1])
        page.select_option("#pace", "0")
        page.get_by_label("Commit order").select_option("")
        page.get_by_label("Gate", exact=True).select_option("")
        page.get_by_label("Tail width K").fill("")
        for preset in presets:
            page.locator(f"label[for$='-{preset}']").click()
            generate(page)
        watch.clean()
    assert [body["policy"]["preset"] for body in sent] == presets


def test_settings_show_where_they_are_used(browser, server):
    """A boost threshold with an order that asks for it; a fallback with a gate that may need one."""
    with opened(browser, server.url) as (page, watch):
        page.get_by_text("More policy settings").click()
        boost, fallback = page.get_by_label("Boost threshold"), page.get_by_label("Without a gate")
        order, gate = page.get_by_label("Commit order"), page.get_by_label("Gate", exact=True)
        page.get_by_label("Guided width").fill("4")
        order.select_option("confidence")
        assert not boost.is_visible()
        order.select_option("guidance_boost")
        assert boost.is_visible()
        page.get_by_label("Guided width").fill("1")
        assert not boost.is_visible()
        gate.select_option("fraction")
        assert not fallback.is_visible()
        gate.select_option("drained")
        assert fallback.is_visible()
        page.get_by_label("Gate threshold").fill("0.5")
        assert not fallback.is_visible()
        watch.clean()


def test_reopened_positions_are_shown(browser, server):
    """A seed whose first text fails is looked for at run time: the model's weights may change."""
    words = ["violin", "harbour", "pepper", "ladder"]
    body = {
        "prompt": "Write one sentence.",
        "constraint": {"type": "keywords", "keywords": words},
        "policy": {"preset": "reopen_repair", "guidance_scale": 0.5, "gate": {"source": "fraction", "fraction": 0.3}},
        "gen_length": 16,
    }
    tried = (server.generate({**body, "seed": seed})["samples"][0] for seed in range(40))
    failed = next(sample for sample in tried if (sample["repair"] or {}).get("rounds"))
    with opened(browser, server.url) as (page, watch):
        page.get_by_label("Keywords").fill(", ".join(words))
        page.locator("label[for$='-reopen_repair']").click()
        page.get_by_label("Guidance w").fill("0.5")
        page.get_by_label("Commit order").select_option("")
        page.get_by_label("Gate", exact=True).select_option("fraction")
        page.get_by_label("Tail width K").fill("")
        page.get_by_label("Seed").fill(str(failed["seed"]))
        page.select_option("#pace", "0")
        generate(page)
        assert page.locator(".mark-at.reopen").count() >= failed["repair"]["rounds"]
        assert f"{failed['forward_evaluations']['total']} of" in page.locator(".run .figures").inner_text()
        assert failed["text"] in page.locator(".run .text").inner_text()
        marks = page.locator(".run .cell.reopened")
        page.locator(".scrub").focus()
        for _ in range(60):
            if marks.count():
                break
            page.keyboard.press("ArrowLeft")
        assert marks.count() > 0
        watch.clean()
