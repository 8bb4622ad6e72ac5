"""The report of `astargate adapt`: what each gate saves and loses, and which to serve, in plain words on one page."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2

from gate_models.gates.learned.bundle import GateBundle
from gate_models.offline.adapt.settings import AdaptSettings
from gate_models.offline.adapt.tasks import split_counts
from gate_models.offline.benchmarks.tasks import TaskPrompt

CANDIDATES: Final = ("value", "policy", "constant")
"""Sources in the order in which they are considered. All were made on other prompts: the audit chooses little."""
HOPELESS: Final = 0.1
"""Success of full guidance, at the upper end of its interval, below which no gate is advised."""
FEW: Final = 100
"""Prompts of a family below which the report asks for more."""


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on the audit prompts of a family, at one tail width."""

    name: str
    width: int
    success: float
    low: float
    high: float
    loss: float | None
    """Success of full guidance less this one's."""
    loss_low: float | None
    loss_high: float | None
    rows: float
    share: float
    """Of the rows of full guidance."""
    perplexity: float | None
    repeats: float


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """What the page says of one family."""

    family: str
    gen_length: int
    counts: Mapping[str, int]
    """Prompts by set."""
    prompts: int
    rows: Sequence[Row]
    advice: str
    body: str
    """A request that the advised gate serves, as JSON."""
    plot: str
    """The picture, base64 of a PNG."""


def rows_of(results: Sequence[Mapping[str, Any]], widths: Sequence[int]) -> list[Row]:
    """Full guidance, no guidance at all, and the candidates at each tail width."""
    full = next(result for result in results if (result["source"], result["width"]) == ("full_cfg", 1))
    wanted = [("full_cfg", 1)]
    wanted += [(name, width) for width in widths for name in ("fixed 0", *CANDIDATES)]
    known = {(result["source"], result["width"]): result for result in results}
    return [_row(known[key], full) for key in wanted if key in known]


def _row(result: Mapping[str, Any], full: Mapping[str, Any]) -> Row:
    gained = result["against"].get("full_cfg") if result is not full else None
    names = {"full_cfg": "full guidance", "fixed 0": "no guidance", "constant": "one cut for the family"}
    return Row(
        name=names.get(result["source"], f"gate '{result['source']}'"),
        width=result["width"],
        success=result["success"]["value"],
        low=result["success"]["low"],
        high=result["success"]["high"],
        loss=None if gained is None else 0.0 - gained["value"],
        loss_low=None if gained is None else 0.0 - gained["high"],
        loss_high=None if gained is None else 0.0 - gained["low"],
        rows=result["rows"],
        share=result["rows"] / full["rows"],
        perplexity=result["perplexity"],
        repeats=result["repeats"],
    )


def advised(rows: Sequence[Row], settings: AdaptSettings) -> tuple[str, dict[str, Any]]:
    """What to serve, in words, and the policy that asks for it."""
    plain = [row for row in rows if row.width == 1]
    base = next((row for row in plain if row.name == "no guidance"), None)
    full = plain[0]
    if full.high < HOPELESS:
        return (
            f"This model does not do these tasks: full guidance meets the constraint in {full.success:.2f} of the texts "
            f"(at most {full.high:.2f}). No gate mends that; try another wording, another model or preset auto."
        ), {"preset": "auto"}
    if base is not None and base.loss_high is not None and base.loss_high <= settings.margin:
        return (
            f"Guidance is not needed here: without any, {base.success:.2f} of the texts succeed (full guidance "
            f"{full.success:.2f}) for {base.share:.0%} of the forward evaluations. Serve preset base."
        ), {"preset": "base"}
    for source, name in zip(CANDIDATES, ("gate 'value'", "gate 'policy'", "one cut for the family"), strict=True):
        row = next((row for row in plain if row.name == name), None)
        if row is None or row.loss_high is None or row.loss_high > settings.margin or row.share >= 1.0:
            continue
        what = f"Serve {name}: it keeps {row.success:.2f} of the texts right (full guidance {full.success:.2f}) for "
        what += f"{row.share:.0%} of the forward evaluations, and loses at most {row.loss_high:.3f} (95 % interval)."
        return what, {"preset": "handoff", "gate": {"source": source}}
    best = min(
        (row for row in plain if row.loss is not None), key=lambda row: (row.loss or 0.0, row.rows), default=None
    )
    seen = "" if best is None else f" The smallest loss was {best.loss:+.3f}, of {best.name}."
    return (
        f"No gate was shown to lose at most {settings.margin:g}.{seen} Serve full guidance, or measure again with more "
        "tasks in the file."
    ), {"preset": "full_cfg"}


def write_report(
    prompts: Mapping[str, Sequence[TaskPrompt]],
    bundles: Sequence[GateBundle],
    content: Mapping[str, Any],
    settings: AdaptSettings,
    plots: Path,
    path: Path,
) -> Path:
    """Write the page of an audit (`content`) to `path`, with the pictures in `plots`; returns `path`."""
    families = []
    for bundle in bundles:
        of_family = prompts[bundle.family]
        results = content["families"][bundle.family]["intention_to_treat"]
        rows = rows_of(results, settings.widths)
        advice, policy = advised(rows, settings)
        length = of_family[0].gen_length
        first = of_family[0]
        asked = {
            "prompt": first.prompt,
            "constraint": first.constraint,
            "family": bundle.family,
            "gen_length": length,
            "policy": policy,
        }
        families.append(
            FamilyReport(
                family=bundle.family,
                gen_length=length,
                counts=split_counts(of_family, settings.seed),
                prompts=results[0]["prompts"],
                rows=rows,
                advice=advice,
                body=json.dumps(asked, indent=1, ensure_ascii=False),
                plot=base64.b64encode((plots / f"audit-{bundle.family}.png").read_bytes()).decode(),
            )
        )
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page = environment.from_string((files(__package__) / "report.html.j2").read_text(encoding="utf-8"))
    path.write_text(page.render(families=families, content=content, settings=settings, few=FEW), encoding="utf-8")
    return path
