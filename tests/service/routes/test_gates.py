"""Learned gates through a real server: they act inside their regime, say what they predicted, and fall back outside."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gate_models.gates.learned import artifact
from gate_models.offline.gate_audit.export import export
from service.cli import app
from tests.gate_models import synthetic_gates as gates
from tests.gate_models.gates.learned.test_audit_report import content
from tests.shipped import mini

BODY = {"constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]}, "gen_length": 16, "seed": 3, "n": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A gate for the shipped model, trained on made-up data, and one that was tampered with."""
    root = tmp_path_factory.mktemp("gates")
    artifact.save(gates.bundle(mini().spec.hash), root / "commongen-k3")
    artifact.save(gates.bundle("another"), root / "tampered")
    path = root / "tampered" / artifact.DESCRIPTION
    path.write_text(path.read_text().replace('"another"', '"mine"'))
    audited = content("commongen-k3")
    audited["families"]["commongen-k3"]["version"] = "test0"
    export(audited, root)
    return root


def test_gates_of_a_folder_are_served(spawn, folder):
    server = spawn("--gates", str(folder)).wait_for(200)
    listed = server.client.get("/v1/gates?evidence=true").json()
    own = [gate for gate in listed["data"] if gate["version"] == "test0"]
    assert {gate["source"] for gate in own} == {"constant", "raw", "policy", "value", "risk"}
    assert {gate["regime"]["tail_width"] for gate in own} == {1, 8}
    assert any("changed after training" in reason for reason in listed["refused"])
    risk = next(gate for gate in own if gate["source"] == "risk")
    assert risk["margins"][0]["certified"] is False
    assert "calibration prompts" in risk["margins"][0]["refusal"]

    family = server.client.get("/v1/gates/commongen-k3").json()
    assert [gate for gate in family["gates"] if gate["version"] == "test0"] == own
    (audit,) = [audit for audit in family["audits"] if audit["gate"] == "test0"]
    assert [(point["source"], point["tail_width"]) for point in audit["points"]] == [("full_cfg", 1), ("policy", 8)]

    for policy in ({"preset": "handoff", "gate": {"source": "policy"}, "tail_width": 8}, None):
        answer = server.generate({**BODY, **({"policy": policy} if policy else {})})
        for sample in answer["samples"]:
            gate = sample["gate"]
            assert (gate["source"], gate["decision"], gate["version"]) == ("policy", "handoff", "test0")
            assert gate["evidence"] == "audited"
            assert gate["handoff_step"] in {2, 5, 8, 11, 14}
            assert gate["predicted_horizon"] is not None
            assert gate["handoff_fate"] in {"handoff", "preformed"}
            assert 0.0 < gate["fate_confidence"] <= 1.0
            assert sample["forward_evaluations"]["unconditional"] == gate["handoff_step"]
            assert sample["forward_evaluations"]["saved"] > 0
    raw = server.generate({**BODY, "policy": {"gate": {"source": "raw"}}})
    assert raw["samples"][0]["gate"]["decision"] == "handoff"
    dear = server.generate({**BODY, "policy": {"gate": {"source": "value", "row_price": 1.0}}})
    assert dear["samples"][0]["gate"]["handoff_step"] == 2

    outside = [({"steps": 32}, "none"), ({"temperature": 0.5}, "pooled"), ({"top_p": 0.9}, "none"),
               ({"policy": {"guidance_scale": 3.0}}, "pooled")]  # fmt: skip
    for change, evidence in outside:
        gate = server.generate({**BODY, **change})["samples"][0]["gate"]
        assert (gate["source"], gate["version"], gate["evidence"]) == ("drained", "pooled-1", evidence)
        assert (gate["measured_loss"] is None) == (evidence == "none")
        assert "outside the audited regime" in gate["fallback_reason"]
        assert gate["nearest_regime"]["family"] == "commongen-k3"
    count = {"constraint": {"type": "word_count", "min_words": 3, "max_words": 9}, "gen_length": 16}
    gate = server.generate(count)["samples"][0]["gate"]
    assert (gate["source"], gate["evidence"]) == ("drained", "pooled")
    full = server.generate({**count, "policy": {"on_fallback": "full_cfg"}})["samples"][0]["gate"]
    assert (full["source"], full["decision"], full["evidence"], full["version"]) == ("policy", "full_cfg", "none", None)
    assert full["fallback_reason"] == gate["fallback_reason"]
    assert "family" in gate["fallback_reason"]
    assert gate["nearest_regime"] is not None
    answer = server.client.post("/generate", json={**BODY, "steps": 32, "policy": {"on_fallback": "reject"}})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "gate_unavailable"
    traced = server.generate({**BODY, "n": 1, "trace": True})["samples"][0]
    assert len(traced["trace"]["steps"]) == 16
    metrics = server.client.get("/metrics").text
    assert "astargate_gate_duration_seconds_count" in metrics
    assert 'source="policy"' in metrics


def test_the_command_lists_shows_and_refuses(folder, tmp_path):
    run = CliRunner().invoke
    listed = run(app, ["gate", "list", "--folder", str(folder)])
    assert listed.exit_code == 0
    assert "commongen-k3  test0" in listed.output
    assert "changed after training" in listed.output
    shown = run(app, ["gate", "show", "commongen-k3", "--folder", str(folder)])
    assert "constant cut at K = 8" in shown.output
    assert "risk at K = 1, margin 0.03" in shown.output
    wrong = run(app, ["gate", "show", "tampered", "--folder", str(folder)])
    assert wrong.exit_code == 1
    assert "changed after training" in wrong.output
    missing = run(app, ["gate", "audit", "--out", str(tmp_path), "--folder", str(folder), "--family", "ccg-length"])
    assert missing.exit_code == 1
    assert "holds no gate of ccg-length" in missing.output


def test_the_list_is_short_unless_its_evidence_is_asked_for(server):
    short, long = (server.client.get(f"/v1/gates{query}") for query in ("", "?evidence=true"))
    assert len(short.content) < len(long.content) / 1.8
    listed, whole = short.json(), long.json()
    assert all(gate["evidence"] == {} and gate["margins"] == [] for gate in listed["data"])
    assert listed["pooled"] == {**whole["pooled"], "evidence": {}}
    assert listed["data"] == [{**gate, "evidence": {}, "margins": []} for gate in whole["data"]]
    assert any(gate["evidence"] for gate in whole["data"])
