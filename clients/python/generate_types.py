"""Writes the client's wire types from the server's `openapi.json`: `python clients/python/generate_types.py [--check]`.

Answers become pydantic models, a module for each tag of the API; the settings of requests become typed dictionaries. A
development tool (it needs datamodel-code-generator); the client itself never imports it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from datamodel_code_generator import (
    AllExportsScope,
    GenerateConfig,
    InputFileType,
    LiteralType,
    PythonVersion,
    generate,
)
from datamodel_code_generator.enums import DataModelType
from datamodel_code_generator.format import Formatter

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "service" / "openapi.json"
TARGET = HERE / "src" / "astargate_client" / "wire"
PACKAGE = "astargate_client"

NOT_COVERED: Final = ("/v1/completions", "/v1/chat/", "/metrics", "/tokenize", "/detokenize")
"""Paths that this client leaves to others (the `openai` package, Prometheus)."""
RENAMED: Final[Mapping[str, str]] = {
    "StepEventReply": "StepEvent",
    "TraceReply": "Trace",
    "ReopenEventReply": "ReopenEvent",
    "PassReply": "Pass",
    "GenerateRequest": "GenerateParams",
    "PolicyRequest": "PolicySettings",
    "GateRequest": "GateOptions",
    "CommittorRequest": "CommittorParams",
    "StateRequest": "State",
    "RepairRequest": "RepairOptions",
}
"""Server's name -> the client's, where the server's says what the client's user need not know."""
GIVEN_APART: Final[Mapping[str, tuple[str, ...]]] = {
    "GenerateRequest": ("prompt", "stream", "detail", "nulls"),
    "CommittorRequest": ("prompt", "state"),
    "PolicyRequest": ("preset", "gate"),
    "GateRequest": ("source",),
}
"""Request fields that are arguments of their own in the client's functions, or its business alone."""
LIKES: Final[Mapping[str, str]] = {
    "constraint": f"{PACKAGE}.transport.specs.ConstraintLike",
    "policy": f"{PACKAGE}.transport.specs.PolicyLike",
    "gate": f"{PACKAGE}.transport.specs.GateLike",
}
"""Request fields that take what the helpers make, or a plain dictionary."""
KEPT: Final = {"type", "properties", "required", "description", "enum", "const", "default", "items", "anyOf", "allOf",
               "oneOf", "additionalProperties", "$ref", "discriminator"}  # fmt: skip
"""Keywords that shape a type; bounds are the server's business."""
HEADER: Final = '"""Written by clients/python/generate_types.py from the server\'s openapi.json; do not edit."""'


def load() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    return document


def references(schema: Any) -> Iterator[str]:
    """Names of the component schemas that a schema mentions."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from references(item)


def closure(schema: Any, components: Mapping[str, Any]) -> set[str]:
    """Every component schema that a schema needs."""
    needed: set[str] = set()
    waiting = list(references(schema))
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(references(components[name]))
    return needed


def wire_names(document: Mapping[str, Any]) -> tuple[dict[str, str], set[str]]:
    """Answers' schemas with the module of each, and requests' schemas."""
    components = document["components"]["schemas"]
    tags: dict[str, set[str]] = {}
    requests: set[str] = set()
    mentioned: set[str] = set()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            body, answers = operation.get("requestBody", {}), operation["responses"]
            mentioned |= closure([body, answers], components)
            if path.startswith(NOT_COVERED):
                continue
            requests |= closure(body, components)
            for name in closure(answers, components):
                tags.setdefault(name, set()).add(operation["tags"][0])
    for name in components.keys() - mentioned:  # events of a stream stand in no path
        tags.setdefault(name, set()).add("generate")
    return {name: used.pop() if len(used) == 1 else "shared" for name, used in tags.items()}, requests


def simplified(schema: Any, names: Mapping[str, str]) -> Any:
    """A schema without bounds and titles, its references renamed."""
    if isinstance(schema, list):
        return [simplified(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in KEPT}
    if "properties" in kept:
        kept["properties"] = {name: simplified(value, names) for name, value in in_order(kept).items()}
        kept.pop("additionalProperties", None)
    if "$ref" in kept:
        kept["$ref"] = "#/components/schemas/" + names[kept["$ref"].rpartition("/")[2]]
    for key in ("items", "anyOf", "allOf", "oneOf", "additionalProperties"):
        if key in kept:
            kept[key] = simplified(kept[key], names)
    if "enum" in kept and "type" not in kept:
        kept["type"] = "string"
    return kept


def in_order(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Properties, the required ones first and as the server lists them."""
    properties = schema["properties"]
    order = list(dict.fromkeys([*schema.get("required", ()), *properties]))
    return {name: properties[name] for name in order}


def answers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas of all answers, named `module.Type`."""
    modules, _ = wire_names(document)
    names = {name: f"{module}.{RENAMED.get(name, name)}" for name, module in modules.items()}
    components = document["components"]["schemas"]
    return {names[name]: simplified(components[name], names) for name in sorted(modules)}  # the same file every time


def requests(document: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas of all requests' settings."""
    _, wanted = wire_names(document)
    names = {name: RENAMED.get(name, name) for name in wanted}
    settings = {}
    for name in sorted(wanted):
        schema = simplified(document["components"]["schemas"][name], names)
        for field in GIVEN_APART.get(name, ()):
            schema["properties"].pop(field)
        for field in LIKES.keys() & schema.get("properties", {}).keys():
            like = {"customTypePath": LIKES[field]}
            nullable = {"type": "null"} in schema["properties"][field].get("anyOf", ())
            schema["properties"][field] = {"anyOf": [like, {"type": "null"}]} if nullable else like
        settings[names[name]] = schema
    return settings


def write(schemas: Mapping[str, Any], output: Path, kind: DataModelType, base: str | None = None) -> None:
    """One run of the generator: types of `kind` for all `schemas`."""
    document = {"openapi": "3.1.0", "info": {"title": "", "version": "1"}, "paths": {},
                "components": {"schemas": schemas}}  # fmt: skip
    config = GenerateConfig(
        input_file_type=InputFileType.OpenAPI,
        input_filename=DOCUMENT.name,
        output=output,
        output_model_type=kind,
        **({"base_class": base} if base else {}),
        enum_field_as_literal=LiteralType.All,
        aliases={"schema": "json_schema"},
        target_python_version=PythonVersion.PY_311,
        use_union_operator=True,
        use_standard_collections=True,
        use_schema_description=True,
        use_field_description=True,
        use_inline_field_description=True,
        use_single_line_docstring=True,
        use_total_false_for_typed_dict=True,
        strict_nullable=True,
        all_exports_scope=AllExportsScope.Recursive if output.suffix != ".py" else None,
        custom_file_header=HEADER,
        formatters=[Formatter.BUILTIN],
    )
    generate(json.dumps(document), config=config)


def build(folder: Path) -> None:
    """Write the package `wire` into `folder`."""
    document = load()
    write(answers(document), folder, DataModelType.PydanticV2BaseModel, f"{PACKAGE}.transport.reply.Reply")
    write(requests(document), folder / "requests.py", DataModelType.TypingTypedDict)
    for command in (["check", "--quiet", "--fix", "--select", "I,UP"], ["format", "--quiet"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--config",
            str(HERE.parents[1] / "pyproject.toml"),
            str(folder),
        ]
        subprocess.run(ruff, check=True)


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "wire"
        build(fresh)
        new = {path.name: path.read_text(encoding="utf-8") for path in fresh.glob("*.py")}
    old = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py")}
    if "--check" in arguments:
        if stale := sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name)):
            print(f"out of date: {', '.join(stale)}; run python clients/python/generate_types.py", file=sys.stderr)
        return int(bool(stale))
    TARGET.mkdir(exist_ok=True)
    for name in old.keys() - new.keys():
        (TARGET / name).unlink()
    for name, text in new.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
