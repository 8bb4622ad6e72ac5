"""The calibrated thresholds as a table: `python -m gate_models.offline.drained.table [FILE]`.

For each family and commit order the tail width that costs least among those whose calibrated threshold keeps the loss
within the margin; the same prompts chose it, so that its loss is optimistic.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gate_models.gates.calibrated import shipped_file
from gate_models.gates.drained import DrainedThreshold, read_thresholds

ORDERS = ("confidence", "guidance_boost")


def table(found: Sequence[DrainedThreshold]) -> str:
    """Markdown, a family a line."""
    lines = [
        "| family | prompts | full CFG: success, rows, ppl | confidence order: K, threshold, loss, rows, ppl "
        "| guidance first: the same |",
        "|---|---|---|---|---|",
    ]
    for family in dict.fromkeys(one.regime.family for one in found):
        own = [one for one in found if one.regime.family == family]
        full = own[0].evidence["full_cfg"]
        cells = " | ".join(_cheapest([one for one in own if one.regime.order == order]) for order in ORDERS)
        lines.append(
            f"| {family} | {own[0].evidence['prompts']} | {full['success']:.2f}, {full['rows']:.0f}, "
            f"{_ppl(full['perplexity'])} | {cells} |"
        )
    return "\n".join(lines)


def _cheapest(own: Sequence[DrainedThreshold]) -> str:
    if not own:
        return "not measured"
    kept = [(_point(one)["rows"], one) for one in own if one.threshold is not None]
    if not kept:
        smallest = min(p["loss"] for one in own for p in one.evidence["curve"].values())
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


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=shipped_file("drained.json"))
    print(table(read_thresholds(parser.parse_args().file)))


if __name__ == "__main__":
    main()
