"""The committed dashboards: current, complete, and Grafana's own models read them back unchanged."""

from __future__ import annotations

import json

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import build
from deploy.grafana.queries import rate, unknown_names
from service.metrics import definitions as define

NAMES = ["gate-audit.json", "savings.json", "serving.json"]


def board(name):
    return json.loads((build.FOLDER / name).read_text(encoding="utf-8"))


def test_the_committed_files_are_what_the_builder_makes():
    made = build.dashboards()
    assert sorted(made) == NAMES
    assert {name: build.text_of(content) for name, content in made.items()} == {
        name: (build.FOLDER / name).read_text(encoding="utf-8") for name in NAMES
    }
    assert sorted(path.name for path in build.FOLDER.iterdir()) == NAMES


def holds(whole, part):
    """Whether `whole` has everything of `part`, defaults added."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_reads_a_dashboard_back(name):
    """A key that Grafana's model of a panel does not know would be lost."""
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(board(name)), cls=JSONEncoder))
    assert holds(again, board(name))
    wrong = board(name)
    wrong["panels"][1]["fieldConfig"]["defaults"]["unitt"] = "s"
    assert not holds(json.loads(json.dumps(Dashboard.from_json(wrong), cls=JSONEncoder)), wrong)


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows(name):
    content = board(name)
    assert {variable["name"] for variable in content["templating"]["list"]} == {
        *("datasource", "model", "instance", "family")
    }
    assert content["links"][0]["tags"] == content["tags"] == ["astargate"]
    assert content["links"][0]["includeVars"]
    panels = [panel for panel in content["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        if panel["type"] in {"timeseries", "stat"}:
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    for _, expr in build.queries(content):
        assert "$instance" in expr


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_overlap(name):
    taken = set()
    for panel in board(name)["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_a_metric_that_does_not_exist_is_found():
    assert unknown_names(["sum(rate(astargate_forward_rows_total[5m]))"]) == []
    assert unknown_names(["rate(astargate_rows_total[5m]) / astargate_step_rows"]) == [
        "astargate_rows_total",
        "astargate_step_rows",
    ]
    assert unknown_names(["astargate:saved_share:ratio1h"], build.recorded_names()) == []
    assert unknown_names(["astargate:saved_share:ratio9h"], build.recorded_names()) == ["astargate:saved_share:ratio9h"]
    with pytest.raises(ValueError, match="has no label family"):
        rate(define.ROWS, "family")
