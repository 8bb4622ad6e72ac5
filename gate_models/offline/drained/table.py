"""The thresholds of the `drained` gate as tables: calibrated ones a family a line, a pooled one by setting.

For each family and commit order it shows the cheapest tail width whose calibrated threshold keeps the loss within the
margin. The same prompts chose that width, so its loss is optimistic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gate_models.gates.calibrated.drained import DrainedThreshold
from gate_models.gates.calibrated.pooled import PooledThreshold
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


def pooled_tables(entries: Sequence[PooledThreshold]) -> str:
    """Markdown: the tables of several models, each under its name and hash."""
    return "\n\n".join(f"## {one.evidence['model']} ({one.model_hash})\n\n{pooled_table(one)}" for one in entries)


def pooled_table(pooled: PooledThreshold) -> str:
    """Markdown: every gate that was tried, then loss and rows of the chosen one by group of settings."""
    heads = ["threshold", "earliest", "loss", "rows of full CFG", "texts that save 15 %", "ppl (full CFG)"]
    tried = markdown.table(heads, (_tried(point, pooled) for point in pooled.evidence["curve"]))
    if pooled.threshold is None:
        return (
            f"{tried}\n\nNo gate of the grid is shown to keep the loss within the margin: requests get full CFG. More "
            "pairs may show one."
        )
    audit = pooled.evidence["audit"]
    told = "" if audit is None else f"\n\nOn {audit['pairs']} pairs of audit prompts: {_point_of(audit)}."
    withheld = "".join(f"\n\nWithheld from {family}: {_loss(lost)}." for family, lost in pooled.withheld.items())
    rows = [
        [factor, value, str(reading["pairs"]), f"{reading['full_cfg_success']:.2f}", _loss(reading), _rows(reading)]
        for factor, groups in pooled.evidence["groups"].items()
        for value, reading in sorted(groups.items(), key=_by_value)
    ]
    groups = markdown.table(["setting", "value", "pairs", "full CFG", "loss", "rows of full CFG"], rows)
    return f"{tried}{told}{withheld}\n\n{groups}"


def _tried(point: Mapping[str, Any], pooled: PooledThreshold) -> list[str]:
    chosen = (point["threshold"], point["earliest"]) == (pooled.threshold, pooled.earliest)
    return [
        f"{point['threshold']:g}" + (" (chosen)" if chosen else ""),
        f"{point['earliest']:g}",
        _loss(point),
        _rows(point),
        f"{point['texts_that_save']:.0%}",
        f"{_ppl(point['perplexity'])} ({_ppl(point['full_cfg_perplexity'])})",
    ]


def _point_of(reading: Mapping[str, Any]) -> str:
    return f"loss {_loss(reading)}, {_rows(reading)} of full CFG's rows, {reading['texts_that_save']:.0%} save 15 %"


def _loss(reading: Mapping[str, Any]) -> str:
    low, high = reading["loss_interval_95"]
    return f"{reading['loss']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _rows(reading: Mapping[str, Any]) -> str:
    return f"{reading['rows_of_full_cfg']:.0%}"


def _by_value(group: tuple[str, Any]) -> tuple[float, str]:
    """Numbers in their order, names after them."""
    try:
        return float(group[0]), ""
    except ValueError:
        return float("inf"), group[0]
