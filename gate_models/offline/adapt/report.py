"""The report of `astargate adapt`: what each gate saves and loses, and which to serve, in plain words on one page."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2

from decoding.policy.gate import GATE_DEFAULTS
from gate_models.gates.learned.bundle import GateBundle
from gate_models.offline.adapt.settings import AdaptSettings
from gate_models.offline.adapt.tasks import split_counts
from gate_models.offline.benchmarks.tasks import TaskPrompt

VALUE: Final = f"value {GATE_DEFAULTS['row_price']:g}"
"""The audit's name of the `value` gate at the price of a row that a request gets by default."""
CANDIDATES: Final = (VALUE, "policy", "constant")
"""Sources in the order in which they are considered. All were made on other prompts: the audit chooses little."""
SHOWN: Final = {
    "full_cfg": "full guidance",
    "fixed 0": "no guidance",
    VALUE: "gate 'value'",
    "policy": "gate 'policy'",
    "constant": "one cut for the family",
}
"""What the page calls a source."""
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
    high: float
    """Upper end of the 95 % interval of `success`."""
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
    return Row(
        name=SHOWN[result["source"]],
        width=result["width"],
        success=result["success"]["value"],
        high=result["success"]["high"],
        loss=None if gained is None else 0.0 - gained["value"],
        loss_low=None if gained is None else 0.0 - gained["high"],
        loss_high=None if gained is None else 0.0 - gained["low"],
        rows=result["rows"],
        share=result["rows"] / full["rows"],
        perplexity=result["perplexity"],
        repeats=result["repeats"],
    )


def advised(rows: Sequence[Row], settings: AdaptSettings, tasks: int) -> tuple[str, dict[str, Any]]:
    """What to serve, in words, and the policy that asks for it."""
    known = {row.name: row for row in rows if row.width == 1}
    full, base = known[SHOWN["full_cfg"]], known.get(SHOWN["fixed 0"])
    if full.high < HOPELESS:
        return (
            f"This model does not do these tasks: under full guidance {full.success:.2f} of the texts meet their "
            f"constraint (at most {full.high:.2f}). No gate mends that. Try another wording, another model, or preset "
            "auto."
        ), {"preset": "auto"}
    offers = [("base", base), *((source, known.get(SHOWN[source])) for source in CANDIDATES)]
    cheaper = [(source, row) for source, row in offers if row is not None and row.share < 1.0]
    for source, row in cheaper:
        if row.loss_high is not None and row.loss_high <= settings.margin:
            sure = f"It loses at most {row.loss_high:.3f} (95 % interval)."
            return f"{_praise(source, row, full)} {sure}", _policy(source)
    for source, row in cheaper:
        if row.loss is not None and row.loss_high is not None and row.loss <= settings.margin / 2:
            wanted = _tasks_wanted(row.loss, row.loss_high, tasks, settings.margin)
            doubt = (
                f"So few texts cannot exclude a loss of {row.loss_high:.2f}. About {wanted} tasks could "
                f"show that it is below {settings.margin:g}. Until then leave the shadow audit on."
            )
            return f"{_praise(source, row, full)} {doubt}", _policy(source)
    return (
        f"No gate keeps what full guidance does, which meets {full.success:.2f} of the constraints. Serve full "
        "guidance."
    ), {"preset": "full_cfg"}


def _praise(source: str, row: Row, full: Row) -> str:
    what = (
        f"{row.success:.2f} of the texts meet their constraint (full guidance {full.success:.2f}) for {row.share:.0%} "
        "of the forward evaluations."
    )
    if source == "base":
        return f"Guidance seems not to be needed here. Serve preset base: {what}"
    return f"Serve {row.name}: {what}"


def _policy(source: str) -> dict[str, Any]:
    if source == "base":
        return {"preset": "base"}
    return {"preset": "handoff", "gate": {"source": "value" if source == VALUE else source}}


def _tasks_wanted(loss: float, high: float, tasks: int, margin: float) -> int:
    """Tasks at which an interval that narrows with the root of their number ends at the margin; full tens."""
    room = margin - max(loss, 0.0)
    return math.ceil(tasks * ((high - loss) / room) ** 2 / 10) * 10


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
        advice, policy = advised(rows, settings, len(of_family))
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
