"""The commit order study: which order of committing tokens meets more constraints at the same cost.

`policies.LISTS` names what the study compares, for `astargate evaluate`. `run` reads what that wrote of the lists
`main`, `calibrated`, `cheap` and `gates` and pools seeds. It writes a report (`report.md`), the numbers behind it
(`study.json`) and plots. Results of the lists `factors`, `switch` and `ablations` are read on their own prompts; those
of policy `recorded` on the prompts that their census measured, beside the same prompts of the main results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gate_models.offline.order_study.ablations import ablations
from gate_models.offline.order_study.factors import factors
from gate_models.offline.order_study.learned_gates import shipped_reports
from gate_models.offline.order_study.plots import plot_frontiers, plot_switch
from gate_models.offline.order_study.points import Group, Point, Texts, beside_recorded, points, read
from gate_models.offline.order_study.policies import CALIBRATED, CHEAP, FACTORS, MAIN
from gate_models.offline.order_study.report import OrderStudy
from gate_models.offline.order_study.switch_curve import moves
from gate_models.offline.scorers.fluency import Fluency, load_judge


@dataclass(frozen=True, slots=True)
class StudySettings:
    """The results that a report of the study reads, as `astargate evaluate --out` wrote them."""

    result: tuple[Path, ...]
    """Of the lists main, calibrated, cheap and gates."""
    out: Path
    """Folder to write."""
    recorded: tuple[Path, ...] = ()
    """Of policy `recorded`, on prompts of a census."""
    factors: tuple[Path, ...] = ()
    """Of the list factors, one factor moved in each."""
    switch: tuple[Path, ...] = ()
    """Of the list switch."""
    ablations: tuple[Path, ...] = ()
    """Of the list ablations, whole and with `--without`."""
    command: tuple[str, ...] = ()
    """How the results were made, for the report."""


def run(settings: StudySettings) -> OrderStudy:
    """Pool the results and write the report, its numbers and its plots.

    Raises `OSError` where a file cannot be read, `ValueError` where two results do not go together.
    """
    fluency = Fluency(load_judge())
    texts, common = read(settings.result)
    recorded, moved, switched, ablated = (
        read(paths)[0] for paths in (settings.recorded, settings.factors, settings.switch, settings.ablations)
    )
    study = OrderStudy(
        groups=_points(texts, fluency),
        common=common | {"judge": fluency.judge.name},
        commands=settings.command,
        pooled=(*MAIN, *CALIBRATED, *CHEAP),
        factors=factors(texts, moved, fluency),
        factor_policies=FACTORS,
        moves=moves(_points(switched, fluency)),
        horizons=_points(beside_recorded(texts, recorded), fluency),
        audits=shipped_reports(common["model_hash"]),
        ablations=ablations(_points(ablated, fluency)),
    )
    write(study, settings.out)
    return study


def _points(texts: Mapping[Group, Texts], fluency: Fluency) -> dict[Group, list[Point]]:
    return {group: points(samples, fluency) for group, samples in texts.items()}


def write(study: OrderStudy, out: Path) -> None:
    """`report.md`, `study.json` (a policy a line) and the plots, into a folder that is made where it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(study.markdown(), encoding="utf-8")
    content = json.dumps(study.to_json(), indent=None)
    (out / "study.json").write_text(content.replace('{"policy"', '\n{"policy"') + "\n", encoding="utf-8")
    plot_frontiers(study.groups, out / "frontiers.png")
    if study.moves:
        plot_switch(study.moves, out / "switch.png")
