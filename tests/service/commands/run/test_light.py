"""What a command does not need it does not load: seconds of a first impression."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

HEAVY = "torch", "transformers", "sklearn", "fastapi", "sqlalchemy", "nltk", "huggingface_hub", "matplotlib"


def loaded_by(code: str) -> set[str]:
    """Modules of `HEAVY`, and torch's compiler, that a fresh interpreter has loaded after `code`."""
    report = "import sys; print(*(sys.modules.keys() & set(sys.argv[1:])), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}", *HEAVY, "torch._dynamo"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize("module", ["service.cli", "service.schemas.generate", "gate_models.policies.names"])
def test_a_call_is_checked_without_anything_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


def test_a_text_needs_torch_alone() -> None:
    code = (
        "from service.commands.run.local import decode\n"
        "answer = decode({'prompt': 'Write.', 'gen_length': 4, 'seed': 1})\n"
        "assert answer['samples'][0]['text']"
    )
    assert loaded_by(code) == {"torch"}
