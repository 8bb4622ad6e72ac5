"""The API describes itself truthfully: OpenAPI, catalogue, playground, and fields that follow the decoder's."""

from __future__ import annotations

import dataclasses
import json
import re

import jsonschema
import pytest

from decoding.constraints import FAMILIES, catalogue
from decoding.gates.protocol import Decision
from decoding.policy import gate as gate_policy
from decoding.policy.decoding_policy import PRESETS, DecodingPolicy
from decoding.policy.repair import Repair
from decoding.records.events import ReopenEvent, StepEvent
from gate_models.gates.calibrated.constant import shipped_cuts
from gate_models.gates.learned import artifact
from gate_models.gates.shipped import shipped_folder
from gate_models.gates.sources import held_sources
from service import openapi
from service.http import auth
from service.routes import examples
from service.schemas.generate import GateResult, ReopenEventReply, StepEventReply
from service.schemas.policy import (
    GateRequest,
    GateSettings,
    PolicyRequest,
    RepairRequest,
    RepairSettings,
    ResolvedPolicy,
)
from tests.service.process import ROOT


@pytest.fixture(scope="module")
def document(server):
    return server.client.get("/openapi.json").json()


def names(cls):
    return {field.name for field in dataclasses.fields(cls)}


def test_the_committed_document_is_current():
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.document(), "run python -m service.openapi"


def test_policy_fields_follow_the_decoder():
    assert set(PolicyRequest.model_fields) == names(DecodingPolicy) | {"defaults"}
    assert set(ResolvedPolicy.model_fields) == names(DecodingPolicy)
    assert set(GateRequest.model_fields) == set(GateSettings.model_fields) == names(gate_policy.GateSettings)
    assert set(RepairRequest.model_fields) == set(RepairSettings.model_fields) == names(Repair)
    assert set(ReopenEventReply.model_fields) == names(ReopenEvent) | {"index", "pieces"}
    assert {"predicted_horizon", "handoff_fate", "fate_confidence"} <= names(Decision) & set(GateResult.model_fields)
    assert set(StepEventReply.model_fields) == names(StepEvent) | {"index", "pieces"}


def test_every_request_field_is_described(document):
    for name in ("GateRequest", "RepairRequest", "PolicyRequest", "GenerateRequest"):
        for field, schema in document["components"]["schemas"][name]["properties"].items():
            assert schema.get("description") or "$ref" in str(schema) or field in {"temperature", "constraint"}, field


def test_examples_answer_as_shown(server, document):
    shown = document["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert {f"constraint: {entry['type']}" for entry in catalogue()} <= set(shown)
    schema = {"$ref": "#/components/schemas/GenerateResponse", "components": document["components"]}
    for name, example in shown.items():
        answer = server.generate({**example["value"], "steps": 4})
        jsonschema.validate(answer, schema)
        assert answer["samples"][0]["text"] is not None, name


def asking(document):
    """The paths that ask for an API key where a server has any."""
    public = (*auth.PUBLIC, *auth.PLAYGROUND, *auth.METRICS)
    operations = [item for path, item in document["paths"].items() if not auth.matches(path, public)]
    assert len(operations) > 10
    return operations


def test_errors_are_documented(document):
    answers = document["paths"]["/generate"]["post"]["responses"]
    assert {"400", "413", "422", "429", "500", "503", "504"} <= set(answers)
    schema = {"$ref": "#/components/schemas/ErrorReply", "components": document["components"]}
    assert all({"401", "403"} <= set(op["responses"]) for path in asking(document) for op in path.values())
    for status in ("400", "401", "403", "413", "422", "429", "500", "503", "504"):
        jsonschema.validate(answers[status]["content"]["application/json"]["example"], schema)
    assert "HTTPValidationError" not in json.dumps(document)


def test_nothing_is_listed_that_does_not_work(server):
    presets = [entry["preset"] for entry in server.client.get("/v1/policies").json()["data"]]
    assert presets == list(PRESETS)
    for name in presets:
        body = {"constraint": {"type": "no_comma"}, "gen_length": 8, "policy": {"preset": name}}
        assert server.generate(body)["policy"]["preset"] == name


def test_constraint_catalogue(server):
    listed = server.client.get("/v1/constraints").json()
    assert [entry["type"] for entry in listed["data"]] == [entry["type"] for entry in catalogue()]
    assert listed["families"] == list(FAMILIES)
    for entry in listed["data"]:
        jsonschema.Draft202012Validator.check_schema(entry["schema"])
        jsonschema.validate(entry["example"], entry["schema"])


def test_gates_and_models(server):
    cuts = shipped_cuts()
    listed = server.client.get("/v1/gates?evidence=true").json()
    gates = listed["data"]
    assert [(g["family"], g["source"], g["fraction"]) for g in gates[: len(cuts)]] == [
        (cut.regime.family, "constant", cut.fraction) for cut in cuts
    ]
    learned, _ = artifact.load_all(shipped_folder())
    assert {(g["family"], g["source"]) for g in gates[len(cuts) :] if g["source"] != "drained"} == {
        (bundle.family, source) for bundle in learned for source in held_sources(bundle)
    }
    assert listed["refused"] == []
    for name in {gate["family"] for gate in gates}:
        family = server.client.get(f"/v1/gates/{name}").json()
        assert family["gates"] == [gate for gate in gates if gate["family"] == name]
        assert {audit["gate"] for audit in family["audits"]} <= {gate["version"] for gate in family["gates"]}
    missing = server.client.get("/v1/gates/" + "x" * 500)
    assert missing.status_code == 404
    assert "commongen-k3" in missing.json()["error"]["message"]
    assert len(missing.content) < 1000
    (model,) = server.client.get("/v1/models").json()["data"]
    assert model["batch_invariant"] is True
    assert model["limits"]["max_prompt"] > 0
    assert len(model["hash"]) == 16


def test_policies_list_their_gate_settings(server):
    sources = {entry["source"]: entry for entry in server.client.get("/v1/policies").json()["gate_sources"]}
    assert set(sources) == set(gate_policy.GATE_SOURCES)
    assert sources["risk"]["defaults"] == {"margin": 0.03, "confidence": 0.95}
    assert sources["drained"]["learned"] is False
    assert sources["drained"]["fields"] == ["threshold", "margin", "earliest", "recheck"]
    assert sources["drained"]["defaults"] == {"threshold": 0.5}


def test_the_readme_s_request_works(server):
    (body,) = re.findall(
        r"/generate [^']*'[^']*' -d '(.*?)'", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    answer = server.generate(json.loads(body))
    assert all(sample["text"] for sample in answer["samples"])


def test_playground_links_work(server):
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    links = [link for link in re.findall(r'(?:href|src)="([^"]+)"', page.text) if not link.startswith("#")]
    assert {"/docs", "/metrics"} < set(links)
    for link in links:
        assert server.client.get(link).status_code == 200, link


def test_error_examples_have_known_types():
    assert all(answer["content"] for answer in examples.errors(400, 404, 405, 413, 422, 429, 500, 503, 504).values())
    assert (ROOT / "service" / "openapi.json").is_file()
