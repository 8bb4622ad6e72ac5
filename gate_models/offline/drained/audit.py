"""Audit the calibrated thresholds of the `drained` gate: what they lose on prompts that had no say in them.

    astargate evaluate --task all --split audit --policies $(python -m gate_models.offline.drained.audit --policies) \
        --out audit.json
    python -m gate_models.offline.drained.audit audit.json --thresholds gate_models/artifacts/drained.json

Every threshold that was run gets its reading into its evidence, under `audit`: full CFG's success in confidence order
less its own on the same audit prompts, with a 95 % bootstrap interval over prompts, rows and fluency. Prints a table.
A family whose guidance does not drain has no threshold and is full CFG: there is nothing to read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from decoding.gates.protocol import Regime
from gate_models.gates.calibrated import shipped_file
from gate_models.gates.drained import DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.drained.calibrate import ORDERS, REFERENCE, WIDTHS, CalibrationPlan
from gate_models.offline.order_study.matches import shown
from gate_models.offline.order_study.points import Group, Point, points, read
from gate_models.offline.order_study.pooled import FULL
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.policies.names import parse_policy


def policies() -> list[str]:
    """What the audit decodes: full CFG, and each order's calibrated threshold at each tail width."""
    heads = [
        "calibrated" if order == REFERENCE else f"calibrated:{order}:b{CalibrationPlan(()).boost_threshold:g}"
        for order in ORDERS
    ]
    return [FULL, *(head if width == 1 else f"{head}:k{width}" for head in heads for width in WIDTHS)]


def audited(
    thresholds: Iterable[DrainedThreshold], found: Mapping[Group, Sequence[Point]], common: Mapping[str, Any]
) -> list[DrainedThreshold]:
    """`thresholds`, those that `found` ran with its reading of them; any earlier reading of these gives way.

    `common` is what the results share (`order_points.read`).
    """
    return [_audited(one, found, common) for one in thresholds]


def _audited(
    one: DrainedThreshold, found: Mapping[Group, Sequence[Point]], common: Mapping[str, Any]
) -> DrainedThreshold:
    own, regime = _group(one.regime, found), one.regime
    if one.threshold is None or regime.model_hash != common["model_hash"]:
        return one
    point = next((point for point in own if _runs(point.policy, regime)), None)
    full = next((point for point in own if point.policy == FULL), None)
    if point is None or full is None or point.loss is None:
        return one
    reading = {
        "prompts": point.prompts,
        "texts": point.texts,
        "seeds": common["seeds"],
        "full_cfg": _reading(full),
        **_reading(point),
        "loss": round(point.loss.value, 4),
        "loss_interval_95": [round(point.loss.low, 4), round(point.loss.high, 4)],
    }
    return replace(one, evidence={**one.evidence, "audit": reading})


def _group(regime: Regime, found: Mapping[Group, Sequence[Point]]) -> Sequence[Point]:
    """The points of `regime`'s family on its canvas; none where its prompts have several."""
    return next(
        (
            own
            for (task, setting), own in found.items()
            if (task, setting.steps, setting.temperature, setting.weight, setting.without)
            == (regime.family, (regime.steps,), regime.temperature, regime.guidance_scale, ())
        ),
        (),
    )


def _runs(name: str, regime: Regime) -> bool:
    """Whether a policy's name is the calibrated gate of `regime`."""
    policy = parse_policy(name).policy
    own = (policy.order, policy.guided_width, policy.boost_threshold, policy.tail_width, policy.tail_threshold)
    asked = (regime.order, regime.guided_width, regime.boost_threshold, regime.tail_width, regime.tail_threshold)
    gate = policy.gate
    is_open = (gate.source, gate.threshold, gate.margin, gate.recheck) == ("drained", None, None, None)
    return is_open and own == asked and policy.tail_reuse is None and policy.repair is None


def _reading(point: Point) -> dict[str, Any]:
    return {
        "success": round(point.success.value, 4),
        "rows": round(point.rows, 2),
        "repeats": round(point.repeats, 4),
        "perplexity": None if point.perplexity is None else round(point.perplexity, 1),
    }


def table(found: Sequence[DrainedThreshold]) -> str:
    """Markdown: the audited thresholds, a line each."""
    lines = [
        "| family | order | K | threshold | loss when calibrated | audit prompts | full CFG: success, rows, ppl "
        "| success | loss | rows | ppl |",
        "|" + "---|" * 11,
    ]
    for one in found:
        reading = one.evidence.get("audit")
        if reading is None:
            continue
        chosen = one.evidence["curve"][f"{one.threshold:g}"]["loss"]
        low, high = reading["loss_interval_95"]
        full = reading["full_cfg"]
        lines.append(
            f"| {one.regime.family} | {one.regime.order} | {one.regime.tail_width} | {one.threshold:g} | {chosen:+.2f} "
            f"| {reading['prompts']} | {full['success']:.2f}, {full['rows']:.0f}, {shown(full['perplexity'])} "
            f"| {reading['success']:.2f} | {reading['loss']:+.2f} [{low:+.2f}, {high:+.2f}] | {reading['rows']:.1f} "
            f"| {shown(reading['perplexity'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*", help="what `astargate evaluate` wrote")
    parser.add_argument("--policies", action="store_true", help="print the policies that an audit decodes and stop")
    parser.add_argument("--thresholds", type=Path, default=shipped_file("drained.json"), help="file to write into")
    arguments = parser.parse_args()
    if arguments.policies:
        print(",".join(policies()))
        return
    if not arguments.results:
        parser.error("give results of `astargate evaluate`, or --policies")
    try:
        texts, common = read(arguments.results)
        thresholds = read_thresholds(arguments.thresholds)
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))
    fluency = Fluency(load_judge())
    found = audited(thresholds, {group: points(own, fluency) for group, own in texts.items()}, common)
    write_thresholds(found, arguments.thresholds)
    print(table(found))


if __name__ == "__main__":
    main()
