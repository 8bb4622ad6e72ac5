"""The Committor and Gates views, and the API key."""

from __future__ import annotations

from gate_models.gates.learned import artifact
from gate_models.offline.gate_audit.export import export
from tests.browser.chromium import TIMEOUT_MS, generate, opened
from tests.gate_models import synthetic_gates as gates
from tests.gate_models.gates.learned.test_audit_report import content
from tests.shipped import mini


def _small(page):
    """A measurement that a busy machine ends soon."""
    page.get_by_label("Keywords").fill("dog")
    page.get_by_label("Length L").fill("8")
    page.locator("[name=rollouts]").fill("2")


def test_a_switch_curve_is_measured_and_drawn(browser, server):
    with opened(browser, server.url, "committor") as (page, watch):
        _small(page)
        page.get_by_role("button", name="Measure").click()
        page.locator(".finding").wait_for(timeout=TIMEOUT_MS)
        assert "a*" in page.locator(".finding").inner_text()
        points = page.locator(".report tbody tr").count()
        assert points >= 5
        assert page.locator(".curve .band").count() == 2
        assert page.locator(".curve .dot").count() == 2 * points
        page.locator(".jobs li").first.wait_for()
        watch.clean()


def test_one_state_as_text(browser, server):
    with opened(browser, server.url, "committor") as (page, watch):
        _small(page)
        page.locator("#committor-mode").select_option("text")
        page.locator("[name='state.text']").fill("the [MASK] is big")
        page.get_by_role("button", name="Measure").click()
        page.locator(".finding").wait_for(timeout=TIMEOUT_MS)
        assert page.locator(".report tbody tr").count() == 1
        watch.clean()


def test_a_running_measurement_can_be_cancelled(browser, spawn):
    server = spawn("--committor-inline-rows", "0").wait_for(200)
    with opened(browser, server.url, "committor") as (page, watch):
        page.locator("[name=rollouts]").fill("400")
        page.get_by_role("button", name="Measure").click()
        page.locator("progress:not([hidden])").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.locator(".figures", has_text="cancelled").wait_for()
        watch.clean()


def test_the_committor_names_the_field_at_fault(browser, server):
    with opened(browser, server.url, "committor") as (page, watch):
        page.locator("[name=rollouts]").fill("1")
        page.get_by_role("button", name="Measure").click()
        page.locator(".field-error").wait_for()
        assert page.evaluate("document.activeElement.name") == "rollouts"
        watch.clean(refusals=1)


def test_gates_are_listed_as_the_server_lists_them(browser, server):
    listed = server.client.get("/v1/gates").json()["data"]
    with opened(browser, server.url, "gates") as (page, watch):
        page.locator("#panel-gates .lead" if listed else "#panel-gates .empty").first.wait_for()
        if listed:
            assert page.locator("#panel-gates tbody").first.locator("tr").count() == len(listed)
            text = page.locator("#panel-gates").inner_text()
            assert all((gate["family"] or "any family") in text for gate in listed)
        watch.clean()


def test_a_family_shows_its_offline_and_its_shadow_audit(browser, spawn, tmp_path):
    artifact.save(gates.bundle(mini().spec.hash), tmp_path / "commongen-k3")
    audited = content("commongen-k3")
    audited["families"]["commongen-k3"]["version"] = "test0"
    export(audited, tmp_path)
    server = spawn("--gates", str(tmp_path)).wait_for(200)
    with opened(browser, server.url, "gates") as (page, watch):
        family = page.locator("details.family", has=page.get_by_role("heading", name="commongen-k3", exact=True))
        page.get_by_text("A request that no gate fits hands off when drained below").wait_for()
        family.locator("summary").click()
        audit = family.locator("section.audit", has_text="test0")
        audit.locator(".frontier .mark").first.wait_for()
        assert audit.locator("tbody th").all_inner_texts() == ["full CFG, 1 a step"]
        audit.get_by_role("combobox").select_option("8")
        assert audit.locator("tbody th").all_inner_texts() == ["full CFG, 1 a step", "policy"]
        assert audit.locator(".frontier .mark").count() == 2
        states = family.get_by_role("region", name="Shadow audit of commongen-k3").locator("tbody tr")
        assert states.count() > 0
        assert "uncertified" in states.first.inner_text()
        watch.clean()


def test_no_gates_is_said_in_words(browser, server):
    with opened(browser, server.url) as (page, watch):
        page.route("**/v1/gates", lambda route: route.fulfill(json={"object": "list", "data": []}))
        page.get_by_role("tab", name="Gates").click()
        page.locator("#panel-gates .empty", has_text="holds no gates").wait_for()
        watch.clean()


def test_a_server_with_keys_asks_for_one(browser, spawn, tmp_path):
    key = "playground-key-0123456789abcdef"
    (tmp_path / "keys").write_text(f"browser:{key}")
    server = spawn("--api-keys-file", str(tmp_path / "keys")).wait_for(200)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(server.url)
        page.locator("#notice", has_text="API key").wait_for()
        page.locator("#key-button").click()
        page.locator("#key").fill(key)
        page.get_by_role("button", name="Use this key").click()
        page.wait_for_selector("body[data-ready]")
        page.select_option("#pace", "0")
        generate(page)
        assert page.evaluate("JSON.stringify(localStorage)").find(key) < 0
        assert key in page.evaluate("JSON.stringify(sessionStorage)")
    finally:
        context.close()


def test_a_family_shows_what_its_thresholds_lost_on_audit_prompts(browser, server):
    """One line a threshold that the server's list has an audit of."""
    listed = server.client.get("/v1/gates/commongen-k4").json()["gates"]
    audited = [gate for gate in listed if gate["source"] == "drained" and "audit" in gate["evidence"]]
    assert audited
    with opened(browser, server.url, "gates") as (page, watch):
        page.locator("details.family", has_text="commongen-k4").locator("summary").click()
        lines = page.get_by_role("table", name="Drained thresholds of commongen-k4 on audit prompts").locator(
            "tbody tr"
        )
        lines.first.wait_for()
        assert lines.count() == len(audited)
        for line, gate in zip(lines.all_inner_texts(), audited, strict=True):
            reading = gate["evidence"]["audit"]
            assert f"{reading['success']:.2f}" in line
            assert f"{reading['loss']:.3f}".removesuffix(".000") in line
            assert gate["regime"]["order"].replace("_", " ") in line
        watch.clean()
