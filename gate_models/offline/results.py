"""The result file of an evaluation: written after every cell (one policy on one task), read again to go on.

A cell is kept where its identity still holds: model, prompts, policy and every setting that can change a text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gate_models.offline.text_metrics import distinct_2, has_adjacent_repeat, wilson, words


def identity(**parts: Any) -> str:
    """Digest of what a cell is made from; order of names does not matter."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


class ResultFile:
    """Cells by task and policy. Without a path nothing is read or written."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        """Take over the cells of an earlier result of the same model; a file that is no result is replaced."""
        self.path = path
        self.content: dict[str, Any] = {**header, "tasks": {}}
        earlier = _read(path)
        if earlier.get("model_hash") == header["model_hash"]:
            self.content["tasks"] = earlier.get("tasks", {})

    def find(self, task: str, policy: str, digest: str) -> tuple[list[dict[str, Any]], float] | None:
        """Samples and seconds of a finished cell of this identity."""
        cells = self.content["tasks"].get(task, {})
        if cells.get("identity", {}).get(policy) != digest:
            return None
        return cells["samples"][policy], float(cells["policies"][policy]["seconds"])

    def put(self, task: str, policy: str, digest: str, row: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        """Add a finished cell and write the file."""
        cells = self.content["tasks"].setdefault(task, {"policies": {}, "samples": {}, "identity": {}})
        cells.setdefault("identity", {})[policy] = digest
        cells["policies"][policy], cells["samples"][policy] = row, samples
        self.write()

    def write(self) -> None:
        """Replace the file as a whole, so that a reader never sees half of it."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)


def _read(path: Path | None) -> dict[str, Any]:
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def summarise(samples: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """The row of a table, without fluency: one policy on one task."""
    texts = [sample["text"] for sample in samples]
    successes, count = sum(sample["satisfied"] for sample in samples), len(samples)
    low, high = wilson(successes, count)
    return {
        "success": successes / count,
        "success_interval_95": [low, high],
        "score": sum(sample["score"] for sample in samples) / count,
        "adjacent_repeat_rate": sum(map(has_adjacent_repeat, texts)) / count,
        "mean_words": sum(len(words(text)) for text in texts) / count,
        "distinct_2": distinct_2(texts),
        "rows_per_sample": sum(sample["rows"] for sample in samples) / count,
        "full_cfg_equivalent": sum(sample["full_cfg_equivalent"] for sample in samples) / count,
        "tokens_per_sample": sum(sample["tokens"] for sample in samples) / count,
        "seconds": seconds,
        "seconds_per_sample": seconds / count,
        "samples": count,
    }


def table(task: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table of one task."""
    lines = [
        f"\n{task}\n",
        "| policy | success | 95 % | ppl | repeats | words | distinct-2 | rows / text | of full CFG | tokens / text "
        "| s / text |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        low, high = row["success_interval_95"]
        share = row["rows_per_sample"] / row["full_cfg_equivalent"]
        perplexity = (row.get("fluency") or {}).get("perplexity")
        lines.append(
            f"| {name} | {row['success']:.3f} | {low:.2f}-{high:.2f} | {_number(perplexity)} "
            f"| {row['adjacent_repeat_rate']:.2f} | {row['mean_words']:.1f} | {row['distinct_2']:.2f} "
            f"| {row['rows_per_sample']:.1f} | {share:.0%} | {row['tokens_per_sample']:.0f} "
            f"| {row['seconds_per_sample']:.3f} |"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"
