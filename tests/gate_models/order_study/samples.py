"""Samples as `astargate evaluate` writes them, for tests of the commit order study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def samples(rate: list[float], rows: int, text: str = "a dog runs", full: int = 32) -> list[dict[str, Any]]:
    """Ten texts a prompt; a share of `rate` [prompts] of them satisfies."""
    return [
        {
            "prompt_id": f"p{number}",
            "satisfied": index < round(10 * share),
            "text": text,
            "rows": rows,
            "full_cfg_equivalent": full,
            "handoff_fraction": None,
        }
        for number, share in enumerate(rate)
        for index in range(10)
    ]


def result(path: Path, task: str, texts: dict[str, list[dict[str, Any]]], **settings: Any) -> Path:
    """A result file of one task at seed 0."""
    content = {
        "seed": 0,
        "model": "tiny",
        "model_hash": "hash",
        "precision": "float32",
        "settings": {"temperature": 1.0, "weights": [], "without": []} | settings,
        "tasks": {task: {"samples": texts}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
