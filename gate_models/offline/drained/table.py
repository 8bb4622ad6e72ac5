"""The calibrated thresholds of the `drained` gate as one table, a family a line.

For each family and commit order it shows the cheapest tail width whose calibrated threshold keeps the loss within the
margin. The same prompts chose that width, so its loss is optimistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gate_models.gates.calibrated.drained import DrainedThreshold
from gate_models.offline.runs import markdown

ORDERS = ("confidence", "guidance_boost")


def table(thresholds: Sequence[DrainedThreshold]) -> str:
    """Markdown, a family a line."""
    rows = []
    for family in dict.fromkeys(one.regime.family for one in thresholds):
        of_family = [one for one in thresholds if one.regime.family == family]
        full = of_family[0].evidence["full_cfg"]
        reference = f"{full['success']:.2f}, {full['rows']:.0f}, {_ppl(full['perplexity'])}"
        cells = (_cheapest([one for one in of_family if one.regime.order == order]) for order in ORDERS)
        rows.append([str(family), str(of_family[0].evidence["prompts"]), reference, *cells])
    heads = ["family", "prompts", "full CFG: success, rows, ppl", "confidence order: K, threshold, loss, rows, ppl"]
    return markdown.table([*heads, "guidance first: the same"], rows)


def _cheapest(thresholds: Sequence[DrainedThreshold]) -> str:
    if not thresholds:
        return "not measured"
    kept = [(_point(one)["rows"], one) for one in thresholds if one.threshold is not None]
    if not kept:
        smallest = min(point["loss"] for one in thresholds for point in one.evidence["curve"].values())
        return f"never (smallest loss {smallest:+.2f})"
    rows, best = min(kept, key=lambda item: (item[0], item[1].regime.tail_width))
    point = _point(best)
    return (
        f"{best.regime.tail_width}, {best.threshold:g}, {point['loss']:+.2f} [{point['loss_interval_95'][0]:+.2f}, "
        f"{point['loss_interval_95'][1]:+.2f}], {rows:.1f}, {_ppl(point['perplexity'])}"
    )


def _ppl(perplexity: float | None) -> str:
    return "-" if perplexity is None else f"{perplexity:.0f}"


def _point(one: DrainedThreshold) -> dict[str, Any]:
    point: dict[str, Any] = one.evidence["curve"][f"{one.threshold:g}"]
    return point
