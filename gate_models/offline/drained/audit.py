"""Audit the calibrated thresholds of the `drained` gate: what they lose on prompts that had no say in them.

    astargate evaluate --task all --split audit --policies $(astargate drained policies) --out audit.json
    astargate drained audit audit.json --thresholds gate_models/artifacts/drained.json

Every threshold that was run gets its reading into its evidence, under `audit`: full CFG's success in confidence order
less the threshold's on the same audit prompts, with a 95 % bootstrap interval over prompts, rows and fluency. A family
whose guidance does not drain has no threshold and is full CFG: there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from decoding.gates.protocol import Regime
from gate_models.gates.calibrated.drained import DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.drained.calibrate import ORDERS, REFERENCE, WIDTHS
from gate_models.offline.drained.settings import CalibrationSettings
from gate_models.offline.order_study.matches import shown
from gate_models.offline.order_study.points import Group, Point, points, read
from gate_models.offline.order_study.pooled import FULL
from gate_models.offline.runs import markdown
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.policies.names import parse_policy


def policies() -> list[str]:
    """What the audit decodes: full CFG, and each order's calibrated threshold at each tail width."""
    heads = [
        "calibrated" if order == REFERENCE else f"calibrated:{order}:b{CalibrationSettings(()).boost_threshold:g}"
        for order in ORDERS
    ]
    return [FULL, *(head if width == 1 else f"{head}:k{width}" for head in heads for width in WIDTHS)]


def audited(
    thresholds: Iterable[DrainedThreshold], groups: Mapping[Group, Sequence[Point]], common: Mapping[str, Any]
) -> list[DrainedThreshold]:
    """`thresholds`, those that `groups` ran with their reading; any earlier reading of these gives way.

    `common` is what the results share (`order_study.points.read`).
    """
    return [_audited(one, groups, common) for one in thresholds]


def _audited(
    one: DrainedThreshold, groups: Mapping[Group, Sequence[Point]], common: Mapping[str, Any]
) -> DrainedThreshold:
    points, regime = _group(one.regime, groups), one.regime
    if one.threshold is None or regime.model_hash != common["model_hash"]:
        return one
    point = next((point for point in points if _runs(point.policy, regime)), None)
    full = next((point for point in points if point.policy == FULL), None)
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


def _group(regime: Regime, groups: Mapping[Group, Sequence[Point]]) -> Sequence[Point]:
    """The points of `regime`'s family on its canvas; none where its prompts have several."""
    return next(
        (
            points
            for (task, setting), points in groups.items()
            if (task, setting.steps, setting.temperature, setting.weight, setting.without)
            == (regime.family, (regime.steps,), regime.temperature, regime.guidance_scale, ())
        ),
        (),
    )


def _runs(name: str, regime: Regime) -> bool:
    """Whether a policy's name is the calibrated gate of `regime`."""
    policy = parse_policy(name).policy
    parsed = (policy.order, policy.guided_width, policy.boost_threshold, policy.tail_width, policy.tail_threshold)
    asked = (regime.order, regime.guided_width, regime.boost_threshold, regime.tail_width, regime.tail_threshold)
    gate = policy.gate
    is_open = (gate.source, gate.threshold, gate.margin, gate.recheck) == ("drained", None, None, None)
    return is_open and parsed == asked and policy.tail_reuse is None and policy.repair is None


def _reading(point: Point) -> dict[str, Any]:
    return {
        "success": round(point.success.value, 4),
        "rows": round(point.rows, 2),
        "repeats": round(point.repeats, 4),
        "perplexity": None if point.perplexity is None else round(point.perplexity, 1),
    }


def table(thresholds: Iterable[DrainedThreshold]) -> str:
    """Markdown: the audited thresholds, a line each."""
    heads = ["family", "order", "K", "threshold", "loss when calibrated", "audit prompts"]
    heads += ["full CFG: success, rows, ppl", "success", "loss", "rows", "ppl"]
    return markdown.table(heads, (_row(one, one.evidence["audit"]) for one in thresholds if "audit" in one.evidence))


def _row(one: DrainedThreshold, reading: Mapping[str, Any]) -> list[str]:
    low, high = reading["loss_interval_95"]
    full = reading["full_cfg"]
    return [
        str(one.regime.family),
        one.regime.order,
        str(one.regime.tail_width),
        f"{one.threshold:g}",
        f"{one.evidence['curve'][f'{one.threshold:g}']['loss']:+.2f}",
        str(reading["prompts"]),
        f"{full['success']:.2f}, {full['rows']:.0f}, {shown(full['perplexity'])}",
        f"{reading['success']:.2f}",
        f"{reading['loss']:+.2f} [{low:+.2f}, {high:+.2f}]",
        f"{reading['rows']:.1f}",
        shown(reading["perplexity"]),
    ]


def run(results: Sequence[Path], thresholds: Path) -> list[DrainedThreshold]:
    """Read `results` of `astargate evaluate` and write what they say of each threshold into the file `thresholds`.

    Raises `OSError` where a file cannot be read, `KeyError` or `ValueError` where it is none of its kind.
    """
    texts, common = read(results)
    calibrated, fluency = read_thresholds(thresholds), Fluency(load_judge())
    groups = {group: points(samples, fluency) for group, samples in texts.items()}
    checked = audited(calibrated, groups, common)
    write_thresholds(checked, thresholds)
    return checked
