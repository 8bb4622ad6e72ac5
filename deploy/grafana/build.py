"""Writes the dashboards: `python -m deploy.grafana.build`; `--check` fails where a file is out of date."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.grafana.gate_audit import gate_audit
from deploy.grafana.queries import unknown_names
from deploy.grafana.savings import savings
from deploy.grafana.serving import serving

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "dashboards"
RECORDING = HERE.parent / "prometheus" / "recording.yml"


def dashboards() -> dict[str, dict[str, Any]]:
    """File name -> dashboard. Raises `ValueError` where a query names a metric that does not exist."""
    made = {"savings.json": savings(), "serving.json": serving(), "gate-audit.json": gate_audit()}
    for name, board in made.items():
        unknown = unknown_names([query for _, query in queries(board)], recorded_names())
        if unknown:
            raise ValueError(f"{name}: no such metric: {', '.join(unknown)}")
    return made


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel title, PromQL) of every target."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def recorded_names() -> set[str]:
    """Series that the recording rules make."""
    groups = yaml.safe_load(RECORDING.read_text(encoding="utf-8"))["groups"]
    return {rule["record"] for group in groups for rule in group["rules"]}


def text_of(board: dict[str, Any]) -> str:
    return json.dumps(board, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is out of date")
    check = parser.parse_args().check
    stale = []
    for name, board in dashboards().items():
        path, text = FOLDER / name, text_of(board)
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        raise SystemExit(f"out of date: {', '.join(stale)}; run python -m deploy.grafana.build")


if __name__ == "__main__":
    main()
