"""A trace prefix becomes a named feature vector: what every learned gate reads.

Causal: the features of a request before step t are functions of this run's steps before t and of the request alone.
The paper's whole-run variant is the same functions on a finished run; it may only be taken from a *separate* run.
Names, order and meaning are versioned by `SCHEMA`; a gate trained under another one is refused (`artifact.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.constraints import Constraint, Facts, parse
from decoding.gates.protocol import GateView
from decoding.records.trace import StepStats, Summary
from gate_models.features import argmax_fill, commit_order
from gate_models.features.argmax_fill import TextReader

VERSION: Final = 1
_PARTS: Final = ("mean", "q10", "q50", "q90")


def _channel(name: str) -> tuple[str, ...]:
    """Feature names of a statistic that has a summary over masked and over committed positions."""
    return (
        *(f"{name}_masked_{part}" for part in (*_PARTS, "minimum")),
        f"{name}_masked_average",
        f"{name}_masked_slope",
        *(f"{name}_committed_{part}" for part in (*_PARTS, "minimum")),
        f"{name}_committed_slope",
    )


GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "confidence": (*_channel("confidence"), "confidence_recent"),
    "entropy": _channel("entropy"),
    "order": commit_order.NAMES,
    "guidance": (
        *(f"kl_{part}" for part in _PARTS),
        "kl_average",
        "kl_slope",
        "tv_max",
        "tv_mean",
        "tv_left",
        "tv_average",
        "tv_slope",
        "boost_max",
        "boost_average",
    ),
    "fill": argmax_fill.NAMES,
    "request": (
        "weight",
        "steps",
        "length",
        "prompt_length",
        "fraction",
        "masked_share",
        "items",
        "item_letters",
        "low",
        "high",
        "at_least",
    ),
}
"""Feature names by group; the groups are ablated separately. `confidence` and `entropy` are the paper's channels,
`order` its commit-order shape; `guidance` (disagreement of guided and conditional), `fill` (the predicate on the
current argmax fill) and `request` are ours.
"""
NAMES: Final[tuple[str, ...]] = tuple(name for names in GROUPS.values() for name in names)
SCHEMA: Final = f"{VERSION}-{hashlib.sha256(' '.join(NAMES).encode()).hexdigest()[:12]}"
RECENT: Final = 3
"""Steps whose commits `confidence_recent` averages."""


def vector(view: GateView, reader: TextReader) -> NDArray[np.float32]:
    """The features `NAMES` of one request before one step, float32; finite."""
    features = named(view, reader)
    return np.array([features[name] for name in NAMES], dtype=np.float32)


def matrix(views: Iterable[GateView], reader: TextReader) -> NDArray[np.float32]:
    """[n, features] float32 of several requests."""
    rows = [vector(view, reader) for view in views]
    return np.stack(rows) if rows else np.empty((0, len(NAMES)), dtype=np.float32)


def named(view: GateView, reader: TextReader) -> dict[str, float]:
    """The features by name."""
    history, regime = view.history, view.regime
    constraint = parse(view.constraint) if view.constraint else None
    return {
        **_statistic("confidence", history, regime.steps),
        "confidence_recent": _mean([value for stats in history[-RECENT:] for value in stats.confidence]),
        **_statistic("entropy", history, regime.steps),
        **commit_order.commit_order_features(history, regime.gen_length),
        **_guidance(history, regime.steps),
        **argmax_fill.fill_features(history, regime.gen_length, constraint, reader),
        **_request(view, constraint),
    }


def columns(groups: Iterable[str]) -> NDArray[np.intp]:
    """Column numbers of feature groups. Raises `KeyError` for an unknown group."""
    wanted = {name for group in groups for name in GROUPS[group]}
    return np.array([index for index, name in enumerate(NAMES) if name in wanted], dtype=np.intp)


def _statistic(name: str, history: Sequence[StepStats], steps: int) -> dict[str, float]:
    masked = [_summary(getattr(stats, f"masked_{name}")) for stats in history]
    committed = [_summary(getattr(stats, f"committed_{name}")) for stats in history]
    last_masked, last_committed = (masked[-1], committed[-1]) if history else (Summary(), Summary())
    means = [summary.mean for summary in masked if summary.count]
    return {
        **{f"{name}_masked_{part}": getattr(last_masked, part) for part in (*_PARTS, "minimum")},
        f"{name}_masked_average": _mean(means),
        f"{name}_masked_slope": _slope(means, steps),
        **{f"{name}_committed_{part}": getattr(last_committed, part) for part in (*_PARTS, "minimum")},
        f"{name}_committed_slope": _slope([summary.mean for summary in committed if summary.count], steps),
    }


def _guidance(history: Sequence[StepStats], steps: int) -> dict[str, float]:
    kl = [_summary(stats.kl) for stats in history]
    variation = [stats.total_variation_mean or 0.0 for stats in history]
    boost = [stats.boost_max or 0.0 for stats in history]
    last = history[-1] if history else None
    means = [summary.mean for summary in kl]
    return {
        **{f"kl_{part}": getattr(kl[-1] if kl else Summary(), part) for part in _PARTS},
        "kl_average": _mean(means),
        "kl_slope": _slope(means, steps),
        "tv_max": (last and last.total_variation_max) or 0.0,
        "tv_mean": variation[-1] if variation else 0.0,
        "tv_left": (last and last.total_variation_left) or 0.0,
        "tv_average": _mean(variation),
        "tv_slope": _slope(variation, steps),
        "boost_max": boost[-1] if boost else 0.0,
        "boost_average": _mean(boost),
    }


def _request(view: GateView, constraint: Constraint | None) -> dict[str, float]:
    regime = view.regime
    return {
        "weight": regime.guidance_scale,
        "steps": float(regime.steps),
        "length": float(regime.gen_length),
        "prompt_length": float(view.prompt_length),
        "fraction": view.step / regime.steps,
        "masked_share": view.masked / regime.gen_length,
        **constraint_facts(constraint),
    }


def constraint_facts(constraint: Constraint | None) -> dict[str, float]:
    """What a constraint asks for, in five numbers that mean the same within a family (see `Facts`).

    Number of listed items and their mean length in letters, lower and upper bound, and how many of its parts have the
    relation `at_least`.
    """
    facts = Facts() if constraint is None else constraint.facts()
    return {
        "items": float(len(facts.items)),
        "item_letters": _mean([float(len(item)) for item in facts.items]),
        "low": facts.low,
        "high": facts.high,
        "at_least": float(facts.at_least),
    }


def _summary(value: Summary | None) -> Summary:
    return value or Summary()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _slope(values: Sequence[float], steps: int) -> float:
    """Least-squares slope of a series over the fraction of the run; 0 for fewer than two values."""
    count = len(values)
    if count < 2:
        return 0.0
    middle, level = (count - 1) / 2.0, sum(values) / count
    rise = sum((index - middle) * (value - level) for index, value in enumerate(values))
    return rise / (count * (count * count - 1.0) / 12.0) * steps
