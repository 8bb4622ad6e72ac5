"""`astargate evaluate`: success, fluency and cost of policies on the benchmarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.evaluation.settings import EvaluateSettings
from service.commands.options import DECODING, OPTIONS, Opt, from_settings, writable


@from_settings(
    EvaluateSettings,
    "evaluate",
    options={
        "tasks": replace(OPTIONS["tasks"], default=("commongen",)),
        "policies": Opt(panel=DECODING, default=("base", "full_cfg")),
        "without": Opt(panel=DECODING),
        "census": Opt(panel=DECODING),
    },
)
def run(
    settings: EvaluateSettings,
    out: Annotated[
        Path | None, typer.Option(help="Write the result here as JSON; finished cells of an earlier run are kept.")
    ] = None,
) -> None:
    """Success, repeats, length, rows and seconds of policies on a task.

    Policies: base, full_cfg, handoff:FRACTION, parallel_tail:FRACTION, drained:THRESHOLD; constant, calibrated, raw,
    policy, value[:PRICE], risk[:MARGIN] (the gates of the family, as a server takes them); recorded; auto. Options
    follow a colon, such as :k8; a name that cannot be read is answered with all of them.
    """
    from gate_models.offline.evaluation import run as evaluation  # noqa: PLC0415

    writable(out, "--out")
    evaluation.run(settings, out)
