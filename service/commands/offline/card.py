"""`astargate card` and `astargate build-prompts`: files that ship with the package, written from their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def run(
    model: Annotated[Path, typer.Option(help="Checkpoint folder; README.md is written there.")],
    training: Annotated[Path, typer.Option(help="Training folder with train.json and log.jsonl.")],
    result: Annotated[list[Path], typer.Option(help="JSON of astargate evaluate; may be given again.")],
    policy: Annotated[str, typer.Option(help="Policy whose texts are shown.")] = "full_cfg:w2",
) -> None:
    """Write the card of `mini` from its training and its evaluations."""
    from gate_models.offline.model_card.card import write_card  # noqa: PLC0415

    results = [json.loads(path.read_text()) for path in result]
    (model / "README.md").write_text(write_card(model, training, results, policy))


def build_prompts(
    data: Annotated[Path, typer.Option(help="Folder with commongen/, collie/ and cognac/.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the prompt files (default: the shipped ones).")] = None,
) -> None:
    """Write the prompt file of every benchmark again, byte for byte."""
    from gate_models.offline.benchmarks.build import build  # noqa: PLC0415
    from gate_models.offline.benchmarks.tasks import prompts_folder  # noqa: PLC0415

    build(data, out or prompts_folder())
