"""The client's types are the server's, field by field."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import subprocess
import sys
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest
from pydantic import BaseModel, TypeAdapter

from astargate_client import Client, wire
from astargate_client.committor import Committor
from astargate_client.transport.reply import Reply
from astargate_client.wire import requests
from tests.service.process import ROOT

SCRIPT = ROOT / "clients" / "python" / "generate_types.py"
DOCUMENT = json.loads((ROOT / "service" / "openapi.json").read_text(encoding="utf-8"))
COMPONENTS = DOCUMENT["components"]["schemas"]
SHAPE = {"type", "enum", "const", "items", "anyOf", "allOf", "oneOf", "additionalProperties", "$ref"}
RENAMED = {
    "StepEventReply": "StepEvent",
    "ReopenEventReply": "ReopenEvent",
    "TraceReply": "Trace",
    "PassReply": "Pass",
}
REPLIES = {name: kind for name, kind in vars(wire).items() if inspect.isclass(kind) and issubclass(kind, Reply)}
PARAMETERS = {
    "GenerateRequest": (requests.GenerateParams, {"prompt", "stream", "detail", "nulls"}),
    "CommittorRequest": (requests.CommittorParams, {"prompt", "state"}),
    "PolicyRequest": (requests.PolicySettings, {"preset", "gate"}),
    "GateRequest": (requests.GateOptions, {"source"}),
    "StateRequest": (requests.State, set()),
    "RepairRequest": (requests.RepairOptions, set()),
}
SPECIAL = {"constraint", "policy"}
"""Take what the helpers make: tests/clients/test_helpers.py."""


def server_name(name: str) -> str:
    return next((server for server, client in RENAMED.items() if client == name), name)


def shape(schema: Any) -> Any:
    """What a value may be, without words and bounds."""
    if isinstance(schema, list):
        return sorted((shape(one) for one in schema), key=lambda one: json.dumps(one, sort_keys=True))
    if not isinstance(schema, dict):
        return schema
    shaped = {key: shape(value) for key, value in schema.items() if key in SHAPE}
    if "$ref" in shaped:
        shaped["$ref"] = server_name(shaped["$ref"].rpartition("/")[2])
    if "const" in shaped:
        shaped["enum"] = [shaped.pop("const")]
    if "enum" in shaped:
        shaped.pop("type", None)
    return shaped


def differences(server: dict[str, Any], client: type[BaseModel]) -> list[str]:
    """What a client's model has otherwise than a schema of the server."""
    mine = client.model_json_schema(by_alias=True)
    theirs, own = server.get("properties", {}), mine.get("properties", {})
    messages = [f"missing: {name}" for name in theirs.keys() - own.keys()]
    messages += [f"unknown to the server: {name}" for name in own.keys() - theirs.keys()]
    for name in theirs.keys() & own.keys():
        if shape(theirs[name]) != shape(own[name]):
            messages.append(f"{name}: {shape(theirs[name])} != {shape(own[name])}")
    if set(server.get("required", ())) != set(mine.get("required", ())):
        messages.append(f"required: {sorted(server.get('required', ()))} != {sorted(mine.get('required', ()))}")
    return sorted(messages)


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_an_answer_has_the_server_s_fields(name):
    assert differences(COMPONENTS[server_name(name)], REPLIES[name]) == []


def test_the_comparison_sees_every_kind_of_drift():
    good = COMPONENTS["Sample"]
    assert differences(good, REPLIES["Sample"]) == []

    def changed(change) -> list[str]:
        schema = copy.deepcopy(good)
        change(schema)
        return differences(schema, REPLIES["Sample"])

    assert changed(lambda s: s["properties"].update(fresh={"type": "string"})) == ["missing: fresh"]
    assert changed(lambda s: s["properties"].pop("seed")) == ["unknown to the server: seed"]
    assert changed(lambda s: s["properties"]["seed"].update(type="string"))[0].startswith("seed: ")
    assert changed(lambda s: s["properties"]["finish_reason"]["enum"].append("bored"))[0].startswith("finish_reason: ")
    assert changed(lambda s: s["properties"]["gate"].update({"$ref": "#/x/Usage"}))[0].startswith("gate: ")
    assert changed(lambda s: s["required"].remove("text"))[0].startswith("required: ")


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_request_has_the_server_s_fields(name):
    kind, apart = PARAMETERS[name]
    server = COMPONENTS[name]["properties"]
    hints = get_type_hints(kind)
    assert hints.keys() | apart == server.keys()
    assert not hints.keys() & apart
    for field in hints.keys() - SPECIAL:
        assert hint_shape(hints[field]) == shape(server[field]), field


def hint_shape(hint: Any) -> Any:
    """`shape` of an annotation; a typed dictionary is the server's schema of that name, which is compared by itself."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if not any(map(is_typeddict, parts)):
        return shape(TypeAdapter(hint).json_schema())
    named = {kind: name for name, (kind, _) in PARAMETERS.items()}
    return shape({"anyOf": [{"type": "null"} if part is NoneType else {"$ref": f"/{named[part]}"} for part in parts]})


def test_fields_given_apart_are_arguments():
    generate, stream = (set(inspect.signature(call).parameters) for call in (Client.generate, Client.stream))
    assert {"prompt"} <= generate
    assert generate == stream
    for call in (Committor.submit, Committor.measure):
        assert {"prompt", "state"} <= set(inspect.signature(call).parameters)


def script():
    spec = importlib.util.spec_from_file_location("generate_types", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_type_of_the_api_is_there():
    generator = script()
    others = {
        name
        for path, operations in DOCUMENT["paths"].items()
        if path.startswith(generator.NOT_COVERED)
        for name in generator.closure(list(operations.values()), COMPONENTS)
    }
    own = {server_name(name) for name in REPLIES} | {
        next((server for server, client in generator.RENAMED.items() if client == name), name)
        for name in vars(requests)
        if isinstance(vars(requests)[name], type) and vars(requests)[name].__module__ == requests.__name__
    }
    assert COMPONENTS.keys() - own <= others
    assert own <= COMPONENTS.keys()
    assert {"GenerateResponse", "Sample", "StepEventReply", "CommittorJob", "GenerateRequest", "PolicyRequest"} <= own


def test_the_committed_types_are_what_the_script_writes():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
