"""The recipes of `docs/structure.md` for a commit order, a gate source and a constraint, followed word for word.

A copy of the packages gets one of each, by edits of the files that the page names and of no others. The copy's server
then lists the new names, writes them into the API's document, and decodes with them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gate_models.gates.learned import artifact
from tests.gate_models import synthetic_gates
from tests.service.process import ROOT
from tests.shipped import mini

PAGE = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
NAMES = ("boost_squared", "half_way", "closing_mark")
STEPS = 16
KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
REQUESTS: dict[str, dict[str, Any]] = {
    "order": {"prompt": "Write.", "policy": {"preset": "full_cfg", "order": "boost_squared"}},
    "gate": {"constraint": KEYWORDS, "policy": {"preset": "handoff", "gate": {"source": "half_way"}}},
    "constraint": {"constraint": {"type": "closing_mark", "ending": "!"}, "policy": {"preset": "base"}},
    "no family": {"prompt": "Write.", "policy": {"preset": "handoff", "gate": {"source": "half_way"}}},
    "no ending": {"constraint": {"type": "closing_mark", "ending": ""}, "policy": {"preset": "base"}},
}
GATE = '''

class HalfWayGate:
    """Hands off in the middle of the run."""

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        return width == 1

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        return GateResolution(FractionGate(0.5, source="half_way", version=bundle.version))
'''
CONSTRAINT = '''"""A test of how a text ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, register


@register
@dataclass(frozen=True, slots=True)
class ClosingMark(Constraint):
    type: ClassVar[str] = "closing_mark"
    summary: ClassVar[str] = "The text ends with a phrase."
    ending: str

    def __post_init__(self) -> None:
        fields.phrase(self.ending, "ending")

    def _checks(self, text: str) -> tuple[Check, ...]:
        return (Check.graded("ending", text.rstrip().endswith(self.ending), 0.0, f"ends with {text[-9:]!r}"),)

    def instruction(self) -> str:
        return f"End the text with {self.ending}."

    def required_text(self) -> tuple[str, ...]:
        return (self.ending,)

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "ending": self.ending}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(cls.type, {"ending": fields.phrase_schema("The ending.")}, ["ending"])

    @classmethod
    def example(cls) -> Self:
        return cls("!")
'''
SERVED = """
import json, sys, time
from starlette.testclient import TestClient
from gate_models.policies.names import parse_policy
from service import openapi
from service.app import build_app
from service.config.settings import Settings

openapi.main([])
gates, requests = json.loads(sys.argv[1])
with TestClient(build_app(Settings(threads=1, defaults="paper", gates=gates, database="sqlite://"))) as client:
    while (ready := client.get("/health/ready")).status_code != 200:
        if "could not be loaded" in ready.text:
            sys.exit(ready.text)
        time.sleep(0.05)
    answers = {name: client.post("/generate", json=body).json() for name, body in requests.items()}
    answers["lists"] = {path: client.get(f"/v1/{path}").text for path in ("policies", "constraints", "gates")}
answers["named"] = parse_policy("half").policy.gate.source
print(json.dumps(answers))
"""


def recipe(what: str) -> str:
    """A recipe of the page: from its bold name to the next one."""
    (text,) = re.findall(rf"^\*\*{what}\*\*.*?(?=^\*\*|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return str(text)


class Copy:
    """The packages in another folder, and the edits that were made there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for package in ("decoding", "gate_models", "service"):
            shutil.copytree(ROOT / package, folder / package)  # bytecode too: what is not edited is not compiled again

    def edit(self, what: str, path: str, old: str, new: str) -> None:
        """Replace `old`, which stands there once, in a file that the recipe names."""
        assert Path(path).name in recipe(what)
        file = self.folder / path
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} no longer has one {old!r}"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def append(self, what: str, path: str, new: str) -> None:
        assert Path(path).name in recipe(what)
        with (self.folder / path).open("a", encoding="utf-8") as file:
            file.write(new)


def add_order(copy: Copy) -> None:
    """As the page shows it."""
    (example,) = re.findall(r"^```python\n(.*?)^```", recipe("a commit order"), flags=re.MULTILINE | re.DOTALL)
    copy.append("a commit order", "decoding/sampling/commit_order.py", f"\n\n{example}")


def add_source(copy: Copy) -> None:
    what, policy, sources = "a gate source", "decoding/policy/gate.py", "gate_models/gates/sources.py"
    copy.edit(what, policy, '"never"]', '"never", "half_way"]')
    copy.edit(what, policy, '    "never": (),\n', '    "never": (),\n    "half_way": (),\n')
    copy.append(what, "gate_models/gates/learned/gates.py", GATE)
    copy.edit(what, sources, "import BundledGate,", "import BundledGate, HalfWayGate,")
    row = '    "half_way": _trained("half", HalfWayGate),\n'
    copy.edit(what, sources, '    "never": SourceFacts(),\n', f'    "never": SourceFacts(),\n{row}')


def add_constraint(copy: Copy) -> None:
    (copy.folder / "decoding" / "constraints" / "general" / "ending.py").write_text(CONSTRAINT, encoding="utf-8")
    copy.edit("a constraint", "decoding/constraints/registry.py", "labels, predicates", "labels, predicates, ending")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    made = Copy(tmp_path_factory.mktemp("copy"))
    for add in (add_order, add_source, add_constraint):
        add(made)
    return made


@pytest.fixture(scope="module")
def answers(copy: Copy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the copy's server says, which has a gate of made-up data for one family."""
    gates = tmp_path_factory.mktemp("gates")
    artifact.save(synthetic_gates.bundle(mini().spec.hash), gates / "commongen-k3")
    shape = {"gen_length": STEPS, "seed": 3}
    given = json.dumps([str(gates), {name: {**body, **shape} for name, body in REQUESTS.items()}])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASTARGATE_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVED, given], cwd=copy.folder, env={**kept, "PYTHONPATH": str(copy.folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answered: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answered


def test_the_repository_does_not_know_these_names() -> None:
    document = (ROOT / "service" / "openapi.json").read_text(encoding="utf-8")
    assert not any(name in document for name in NAMES)


def test_the_api_s_document_and_lists_name_all_three(copy: Copy, answers: dict[str, Any]) -> None:
    document = (copy.folder / "service" / "openapi.json").read_text(encoding="utf-8")
    assert all(f'"{name}"' in document for name in NAMES)
    lists = answers["lists"]
    assert '"half_way"' in lists["policies"]
    assert '"half_way"' in lists["gates"]
    assert '"closing_mark"' in lists["constraints"]
    assert answers["named"] == "half_way"


def test_a_request_is_decoded_in_the_new_order(answers: dict[str, Any]) -> None:
    answer = answers["order"]
    assert answer["policy"]["order"] == "boost_squared"
    (sample,) = answer["samples"]
    assert sample["forward_evaluations"]["unconditional"] == STEPS


def test_a_request_is_handed_off_by_the_new_gate(answers: dict[str, Any]) -> None:
    (sample,) = answers["gate"]["samples"]
    gate = sample["gate"]
    assert (gate["source"], gate["decision"], gate["handoff_step"]) == ("half_way", "handoff", STEPS // 2)
    assert gate["version"] == "test0"
    assert sample["forward_evaluations"]["unconditional"] == STEPS // 2
    (without,) = answers["no family"]["samples"]
    assert without["gate"]["evidence"] != "audited"
    assert without["gate"]["fallback_reason"]


def test_a_request_is_judged_by_the_new_constraint(answers: dict[str, Any]) -> None:
    (sample,) = answers["constraint"]["samples"]
    (check,) = sample["checks"]
    assert (check["name"], check["satisfied"]) == ("ending", sample["text"].rstrip().endswith("!"))
    assert sample["satisfied"] is check["satisfied"]
    assert answers["no ending"]["error"]["param"] == "constraint.ending"
