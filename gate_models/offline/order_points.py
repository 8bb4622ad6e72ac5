"""Evaluated policies as points: success, fluency and rows over prompts, and contrasts on the same prompts.

Results of several seeds of one setting are pooled; prompts are the unit of every interval (bootstrap), since the texts
of one prompt are alike. Every policy runs on every prompt (intention to treat).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from gate_models.offline.gate_results import Fluency
from gate_models.offline.inference import bootstrap, paired_bootstrap
from gate_models.offline.intervals import Estimate
from gate_models.offline.policy_names import parse_policy
from gate_models.offline.text_metrics import has_adjacent_repeat, words

Group = tuple[str, str]
"""(task, how it was decoded: "T = 24, temperature 1")."""
Texts = dict[str, list[dict[str, Any]]]
"""Samples by policy."""
TAIL: Final = ", parallel tail"


@dataclass(frozen=True, slots=True)
class Point:
    """One policy on one task in one setting."""

    policy: str
    series: str
    prompts: int
    texts: int
    success: Estimate
    loss: Estimate | None
    """Success of full CFG in confidence order less this policy's, on the same prompts; None without full CFG."""
    rows: float
    perplexity: float | None
    repeats: float
    words: float
    handoff: float | None
    """Mean handoff step as a share of the steps, over the texts that were handed off."""
    by_prompt: Mapping[str, float] = field(repr=False)
    """Success over each prompt's texts."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "policy": self.policy,
            "prompts": self.prompts,
            "texts": self.texts,
            "success": _interval(self.success),
            "loss": None if self.loss is None else _interval(self.loss),
            "rows": round(self.rows, 2),
            "perplexity": None if self.perplexity is None else round(self.perplexity, 1),
            "repeats": round(self.repeats, 3),
            "words": round(self.words, 2),
            "handoff": None if self.handoff is None else round(self.handoff, 3),
        }


def _interval(found: Estimate) -> list[float]:
    return [round(value, 3) for value in (found.value, found.low, found.high)]


def series_of(policy: str) -> str:
    """The group that a policy is drawn in."""
    own = parse_policy(policy).policy
    name = "confidence order" if own.order in ("confidence", "random") else "guidance first"
    return name + (TAIL if max(own.tail_width, own.guided_width if own.boost_threshold is None else 1) > 1 else "")


def read(paths: Iterable[Path]) -> tuple[dict[Group, Texts], dict[str, Any]]:
    """Samples by group and policy, and what the results have in common. Raises `ValueError` for another model's."""
    found: dict[Group, Texts] = defaultdict(lambda: defaultdict(list))
    common: dict[str, Any] = {}
    seeds: dict[tuple[Group, str], set[int]] = defaultdict(set)
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        own = {name: content[name] for name in ("model", "model_hash", "precision")}
        if common and common != own:
            raise ValueError(f"{path} is of {own}, the results before it of {common}")
        common = own
        for task, cells in content["tasks"].items():
            for policy, samples in cells["samples"].items():
                group = task, _setting(content["settings"], samples)
                if content["seed"] in seeds[group, policy]:
                    raise ValueError(f"{path}: {task} {policy} at seed {content['seed']} is there already")
                seeds[group, policy].add(content["seed"])
                found[group][policy] += samples
    return found, common | {"seeds": sorted({seed for own in seeds.values() for seed in own})}


def _setting(settings: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    """How a cell was decoded. T follows from full CFG's cost, which every sample names."""
    steps = samples[0]["full_cfg_equivalent"] // 2
    without = "".join(f", without {name}" for name in settings.get("without") or ())
    return f"T = {steps}, temperature {settings['temperature']:g}{without}"


def points(texts: Texts, fluency: Fluency) -> list[Point]:
    """The policies of one group by rows a text."""
    success = {policy: _by_prompt(samples) for policy, samples in texts.items()}
    full = success.get("full_cfg")
    found = [_point(policy, samples, success[policy], full, fluency) for policy, samples in texts.items()]
    return sorted(found, key=lambda point: point.rows)


def _by_prompt(samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    own: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        own[sample["prompt_id"]].append(sample["satisfied"])
    return {prompt: sum(values) / len(values) for prompt, values in own.items()}


def _point(
    policy: str,
    samples: Sequence[Mapping[str, Any]],
    own: Mapping[str, float],
    full: Mapping[str, float] | None,
    fluency: Fluency,
) -> Point:
    texts = [sample["text"] for sample in samples]
    handed = [sample["handoff_fraction"] for sample in samples if sample["handoff_fraction"] is not None]
    return Point(
        policy=policy,
        series=series_of(policy),
        prompts=len(own),
        texts=len(samples),
        success=bootstrap(np.array(list(own.values()))),
        loss=None if full is None else paired_bootstrap(full, own),
        rows=sum(sample["rows"] for sample in samples) / len(samples),
        perplexity=fluency.perplexity(texts),
        repeats=sum(map(has_adjacent_repeat, texts)) / len(texts),
        words=sum(len(words(text)) for text in texts) / len(texts),
        handoff=sum(handed) / len(handed) if handed else None,
        by_prompt=own,
    )


def frontier(found: Sequence[Point]) -> list[Point]:
    """The points that no cheaper (or equally dear) point of the series beats in success."""
    kept: list[Point] = []
    for point in sorted(found, key=lambda p: (p.rows, -p.success.value)):
        if not kept or point.success.value > kept[-1].success.value:
            kept.append(point)
    return kept


@dataclass(frozen=True, slots=True)
class Match:
    """A guidance-first policy beside the best confidence-order policy that costs no more rows.

    Full CFG of several positions a step is left out of the comparison: it is cheap and meets its constraint with texts
    that repeat themselves, which the tables show. The other one is chosen by its success on these very prompts, which
    favours it: the difference is a lower reading.
    """

    own: Point
    other: Point
    difference: Estimate

    @property
    def verdict(self) -> str:
        """Either "wins" or "loses" where the interval of the difference excludes 0, else "even"."""
        return "wins" if self.difference.low > 0 else "loses" if self.difference.high < 0 else "even"


def matches(found: Sequence[Point]) -> list[Match]:
    """Every guidance-first policy that some confidence-order policy can be compared with, by rows."""
    plain = [p for p in found if p.series.startswith("confidence") and parse_policy(p.policy).policy.guided_width == 1]
    kept = []
    for point in found:
        cheaper = [other for other in plain if other.rows <= point.rows + 1e-9]
        if point.series.startswith("guidance") and cheaper:
            best = max(cheaper, key=lambda other: (other.success.value, -other.rows))
            kept.append(Match(point, best, paired_bootstrap(point.by_prompt, best.by_prompt)))
    return kept
