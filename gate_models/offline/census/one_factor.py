"""`astargate census one-factor`: the census at a centre and along three axes, guidance scale, canvas and steps.

One factor moves at a time (Appendix C). Each configuration is a whole census in a folder of `out` ("centre",
"weight-4", "length-32", "steps-8"), so that it is resumed, grown and read like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gate_models.committor.fates import CENSORED, HANDOFF_FATES
from gate_models.offline.census import run as census
from gate_models.offline.census.labels import labels_of
from gate_models.offline.census.records import Census
from gate_models.offline.census.report import Quartiles, fate_counts, handoff_class
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.store import load_census
from gate_models.offline.runs import markdown

CENTRE = "centre"


def configurations(
    settings: CensusSettings,
    *,
    weights: Sequence[float] = (),
    lengths: Sequence[int] = (),
    steps: Sequence[int] = (),
) -> dict[str, CensusSettings]:
    """The settings of every configuration by name, the centre first; extra runs at other weights are left out off it.

    A point of an axis that is the centre's is not repeated.
    """
    plain = replace(settings, extra_weights=(), sweep=(), repeats=1)
    configured = {CENTRE: settings}
    configured |= {f"weight-{w:g}": replace(plain, weight=w) for w in weights if w != settings.weight}
    configured |= {f"length-{n}": replace(plain, gen_length=n) for n in lengths if n != settings.gen_length}
    configured |= {f"steps-{n}": replace(plain, steps=n) for n in steps if n != settings.steps}
    return configured


def run(
    configured: Mapping[str, CensusSettings], out: Path, *, workers: int = 1, shard: int = 2
) -> dict[str, census.CensusProgress]:
    """Run every configuration in turn; ends after the first that was stopped. Raises as `census.run` does."""
    finished: dict[str, census.CensusProgress] = {}
    for name, settings in configured.items():
        finished[name] = census.run(settings, out / name, workers=workers, shard=shard)
        if finished[name].stopped:
            break
    return finished


@dataclass(frozen=True, slots=True)
class FactorRow:
    """One subtask in one configuration: handoff fates and a* over the handoff class (plug-in)."""

    configuration: str
    task: str
    prompts: int
    fates: Mapping[str, int]
    horizon: Quartiles | None

    @property
    def censored(self) -> int:
        return sum(self.fates[fate] for fate in CENSORED)


def rows(out: Path) -> list[FactorRow]:
    """The rows of every configuration in `out`, by subtask. Raises `CensusError` where a folder cannot be read."""
    table = []
    for folder in sorted((path.parent for path in out.glob("*/manifest.json")), key=_place):
        census = load_census(folder, heavy=False)
        table += [_row(folder.name, census, task) for task in census.tasks]
    return sorted(table, key=lambda row: row.task)


def _place(folder: Path) -> tuple[str, float, str]:
    """Order of a configuration: the centre, then axis by axis, each by its value."""
    axis, _, value = folder.name.partition("-")
    try:
        return axis, float(value or 0), folder.name
    except ValueError:  # a census that another command made
        return folder.name, 0.0, folder.name


def _row(name: str, census: Census, task: str) -> FactorRow:
    labels = [label for prompt in census.of(task) if (label := labels_of(census, prompt)) is not None]
    return FactorRow(name, task, len(labels), fate_counts(labels), handoff_class(labels))


def to_markdown(rows: Sequence[FactorRow]) -> str:
    """The paper's per-configuration fate table."""
    cells = [
        (
            row.task,
            row.configuration,
            str(row.prompts),
            *(str(row.fates[fate]) for fate in HANDOFF_FATES),
            str(row.censored),
            "-" if row.horizon is None else row.horizon.text,
        )
        for row in rows
    ]
    head = "Counts of prompts (full census); a* / T: median [quartiles] over the handoff class, plug-in.\n\n"
    table = markdown.table(("subtask", "configuration", "n", *HANDOFF_FATES, "a* = T", "a*"), cells)
    return f"{head}{table}\n"
