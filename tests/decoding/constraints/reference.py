"""Reference examples: the full sets from ../shared where it is there, else the committed selections."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "constraints"
SHARED = Path(os.environ.get("ASTARGATE_SHARED", ROOT.parent / "shared")) / "data"

IFEVAL_TYPES = {
    "keywords:frequency": "keyword_frequency",
    "keywords:letter_frequency": "letter_frequency",
    "change_case:capital_word_frequency": "capital_frequency",
    "punctuation:no_comma": "no_comma",
}
_IFEVAL_FIELDS = {
    "keyword": "keyword",
    "frequency": "count",
    "relation": "relation",
    "letter": "letter",
    "let_frequency": "count",
    "let_relation": "relation",
    "capital_frequency": "count",
    "capital_relation": "relation",
}


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def collie() -> list[dict[str, Any]]:
    """Records with `family`, `targets` and `example`: 375 with the shared data, 40 without."""
    files = sorted((SHARED / "collie").glob("*_c0*.jsonl"))
    return [record for file in files or [FIXTURES / "collie_gutenberg.jsonl"] for record in read(file)]


def collie_spec(record: dict[str, Any]) -> dict[str, Any]:
    if record["family"] == "c07":
        return {"type": "collie_c07", "words": record["targets"]}
    return {"type": "collie_c06a", "min_words": record["targets"][0], "max_chars": record["targets"][1]}


def ifeval() -> list[list[dict[str, Any]]]:
    """Specs of the four counted instructions of each prompt."""
    return [
        [ifeval_spec(item["id"], item["kwargs"]) for item in record["instructions"]]
        for record in read(FIXTURES / "ifeval_kwargs.jsonl")
    ]


def ifeval_spec(identifier: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    fields = {_IFEVAL_FIELDS[name]: value for name, value in kwargs.items()}
    if "relation" in fields:
        fields["relation"] = fields["relation"].replace(" ", "_")
    return {"type": IFEVAL_TYPES[identifier], **fields}
