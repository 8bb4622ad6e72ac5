"""The result file of an evaluation: written after every cell (one policy on one task), read again to go on.

A cell that a run asks for is kept where its identity holds: model, prompts, policy, the versions of torch and
astargate, and every setting that can change a text. Any other cell is kept where the run's header is true of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gate_models.features.text_metrics import distinct_2, has_adjacent_repeat, words
from gate_models.offline.runs import markdown
from gate_models.statistics.intervals import wilson

_PARTS: Final = ("policies", "samples", "identity")
_UNSET: Final[tuple[Any, ...]] = (None, (), [])
_ASKED: Final = {"tasks", "policies", "weights", "model", "census"}


def identity(**parts: Any) -> str:
    """Digest of what a cell is made from; order of names does not matter."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file as a whole, so that a reader never sees half of it; folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


class ResultFile:
    """Cells by task and policy. Without a path nothing is read or written."""

    def __init__(
        self, path: Path | None, header: Mapping[str, Any], asked: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """Take over the cells of an earlier result that still hold; a file that is no result is replaced.

        `asked`: identities of the cells of this run, by task and policy.
        """
        self.path = path
        self.content: dict[str, Any] = {**header, "tasks": _kept(_read(path), header, asked or {})}

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
        """Write the cells; without a path nothing."""
        if self.path is not None:
            write_json(self.path, self.content)


def _kept(
    earlier: Mapping[str, Any], header: Mapping[str, Any], asked: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """The earlier cells that may stand under `header`."""
    if earlier.get("model_hash") != header["model_hash"]:
        return {}
    same = _basis(earlier) == _basis(header)
    tasks = {}
    for task, cells in earlier.get("tasks", {}).items():
        digests, wanted = cells.get("identity", {}), asked.get(task, {})
        names = [name for name in cells["policies"] if (digests.get(name) == wanted[name] if name in wanted else same)]
        if names:
            tasks[task] = {
                part: {name: cells[part][name] for name in names if name in cells.get(part, {})} for part in _PARTS
            }
    return tasks


def _basis(header: Mapping[str, Any]) -> Any:
    """A header without what was asked for and the name of the model (its hash counts), as JSON has it."""
    kept = {name: value for name, value in header.items() if name not in {"tasks", "policies", "model"}}
    settings = header.get("settings", {})
    kept["settings"] = {
        name: value for name, value in settings.items() if name not in _ASKED and value not in _UNSET
    }  # an option that is newer than the file was left open there
    return json.loads(json.dumps(kept))


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


HEADS: Final = (
    *("policy", "success", "95 %", "accepted", "readable", "ppl", "repeats", "words", "distinct-2"),
    *("rows / text", "of full CFG", "tokens / text", "s / text"),
)


def table(task: str, rows: Mapping[str, Mapping[str, Any]], people: Mapping[str, Any] | None = None) -> str:
    """A Markdown table of one task; its last row holds what the judge says of texts by `people`."""
    fallen = {f"{name}: {fall['reason']}" for name, row in rows.items() if (fall := row.get("fallback"))}
    last = [] if people is None else [_people(people)]
    lines = [f"\n{task}\n", markdown.table(HEADS, [*(_row(name, row) for name, row in rows.items()), *last])]
    return "\n".join([*lines, *(f"\nFalls back to full CFG: {line}" for line in sorted(fallen))])


def _row(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["success_interval_95"]
    return (
        name + (" (falls back)" if row.get("fallback") else ""),  # full CFG stands for a gate that the setting lacks
        f"{row['success']:.3f}",
        f"{low:.2f}-{high:.2f}",
        _share(row.get("accepted")),
        _share(row.get("readable")),
        _number((row.get("fluency") or {}).get("perplexity")),
        f"{row['adjacent_repeat_rate']:.2f}",
        f"{row['mean_words']:.1f}",
        f"{row['distinct_2']:.2f}",
        f"{row['rows_per_sample']:.1f}",
        f"{row['rows_per_sample'] / row['full_cfg_equivalent']:.0%}",
        f"{row['tokens_per_sample']:.0f}",
        f"{row['seconds_per_sample']:.3f}",
    )


def _people(people: Mapping[str, Any]) -> tuple[str, ...]:
    """Texts by people answer no prompt of the task: they have a readable share alone."""
    cells = dict.fromkeys(HEADS, "-") | {"policy": "texts by people", "readable": _share(people["readable"])}
    return tuple(cells.values())


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"
