"""Evaluated policies as points: what each meets of its constraints, how fluent its texts are, and what it costs.

Results of several seeds of one setting are pooled. Prompts are the unit of every interval (bootstrap), since the texts
of one prompt are alike. Every policy runs on every prompt (intention to treat).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from gate_models.features.text_metrics import has_adjacent_repeat, words
from gate_models.offline.scorers.fluency import Fluency
from gate_models.policies.names import parse_policy
from gate_models.statistics.bootstrap import bootstrap, by_prompt, paired_bootstrap
from gate_models.statistics.intervals import Estimate

DEFAULT_WEIGHT: Final = 2.0
"""Guidance scale of a policy whose name gives none."""


@dataclass(frozen=True, slots=True, order=True)
class StudySetting:
    """How a group was decoded, beside its policies."""

    steps: tuple[int, ...]
    """T; several where a task's prompts have several canvases."""
    temperature: float = 1.0
    weight: float = DEFAULT_WEIGHT
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As tables head a group: "T = 24, temperature 1"."""
        shown = f"T = {' to '.join(map(str, self.steps))}, temperature {self.temperature:g}"
        weight = "" if self.weight == DEFAULT_WEIGHT else f", w = {self.weight:g}"
        return shown + weight + "".join(f", without {name}" for name in self.without)


Group = tuple[str, StudySetting]
"""(task, how it was decoded)."""
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
    share: float
    """Rows over those of full CFG, 2T a text."""
    perplexity: float | None
    repeats: float
    words: float
    handoff: float | None
    """Mean handoff step as a share of the steps, over the texts that were handed off."""
    by_prompt: Mapping[str, float] = field(repr=False)
    """Success over each prompt's texts."""
    falls_back: bool = False
    """Whether every text is full CFG's at its cost, as of a calibrated gate in a family that has none."""

    @property
    def is_first(self) -> bool:
        """Whether it commits guidance first; not where it has fallen back to full CFG."""
        return self.series.startswith("guidance") and not self.falls_back

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "policy": self.policy,
            "prompts": self.prompts,
            "texts": self.texts,
            "success": self.success.rounded,
            "loss": None if self.loss is None else self.loss.rounded,
            "rows": round(self.rows, 2),
            "share": round(self.share, 4),
            "perplexity": None if self.perplexity is None else round(self.perplexity, 1),
            "repeats": round(self.repeats, 3),
            "words": round(self.words, 2),
            "handoff": None if self.handoff is None else round(self.handoff, 3),
            "falls_back": self.falls_back,
        }


def series_of(policy: str) -> str:
    """The group that a policy is drawn in."""
    parsed = parse_policy(policy).policy
    name = "confidence order" if parsed.order in ("confidence", "random") else "guidance first"
    guided_width = parsed.guided_width if parsed.boost_threshold is None else 1
    return name + (TAIL if max(parsed.tail_width, guided_width) > 1 else "")


def read(paths: Iterable[Path]) -> tuple[dict[Group, Texts], dict[str, Any]]:
    """Samples by group and policy, and what the results have in common.

    The weight of a swept policy becomes part of its group, and base decoding belongs to every weight that its result
    swept. Raises `ValueError` for another model's result, and for a policy and seed that are there already.
    """
    groups: dict[Group, Texts] = defaultdict(lambda: defaultdict(list))
    common: dict[str, Any] = {}
    seeds: dict[tuple[Group, str], set[int]] = defaultdict(set)
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_with = {name: content[name] for name in ("model", "model_hash", "precision")}
        if common and common != made_with:
            raise ValueError(f"{path} is of {made_with}, the results before it of {common}")
        common = made_with
        for task, cells in content["tasks"].items():
            for policy, samples in cells["samples"].items():
                for name, setting in _placed(policy, samples, content["settings"]):
                    if content["seed"] in seeds[(task, setting), name]:
                        raise ValueError(f"{path}: {task} {policy} at seed {content['seed']} is there already")
                    seeds[(task, setting), name].add(content["seed"])
                    groups[task, setting][name] += samples
    return groups, common | {"seeds": sorted(set().union(*seeds.values()))}


def _placed(
    policy: str, samples: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> Iterator[tuple[str, StudySetting]]:
    """The settings that a cell belongs to, each with the policy's name without its weight.

    T follows from full CFG's cost, which every sample names.
    """
    scale = parse_policy(policy).policy.guidance_scale
    weights = (settings.get("weights") or [DEFAULT_WEIGHT]) if scale == 0.0 else [scale]
    steps = tuple(sorted({sample["full_cfg_equivalent"] // 2 for sample in samples}))
    name = ":".join(part for part in policy.split(":") if not re.fullmatch(r"w\d+(\.\d+)?", part))
    for weight in weights:
        if weight > 0.0:
            yield (
                name,
                StudySetting(steps, float(settings["temperature"]), weight, tuple(settings.get("without") or ())),
            )


def on_prompts(texts: Texts, kept: AbstractSet[str]) -> Texts:
    """The samples of the prompts in `kept` alone; policies that then have none are left out."""
    chosen = {policy: [one for one in samples if one["prompt_id"] in kept] for policy, samples in texts.items()}
    return {policy: samples for policy, samples in chosen.items() if samples}


def prompts_in(texts: Texts) -> set[str]:
    """The prompts that every policy of a group has."""
    return set.intersection(*({sample["prompt_id"] for sample in samples} for samples in texts.values()))


def beside_recorded(texts: Mapping[Group, Texts], recorded: Mapping[Group, Texts]) -> dict[Group, Texts]:
    """Every policy of the groups in `recorded`, on the prompts alone that these have."""
    return {
        group: on_prompts({**texts[group], **measured}, prompts_in(measured))
        for group, measured in recorded.items()
        if group in texts
    }


def points(texts: Texts, fluency: Fluency) -> list[Point]:
    """The policies of one group by rows a text."""
    full = texts.get("full_cfg")
    measured = [_point(policy, samples, full, fluency) for policy, samples in texts.items()]
    return sorted(measured, key=lambda point: point.rows)


def _point(
    policy: str, samples: Sequence[Mapping[str, Any]], full: Sequence[Mapping[str, Any]] | None, fluency: Fluency
) -> Point:
    texts = [sample["text"] for sample in samples]
    handed = [sample["handoff_fraction"] for sample in samples if sample["handoff_fraction"] is not None]
    success = by_prompt(samples)
    return Point(
        policy=policy,
        series=series_of(policy),
        prompts=len(success),
        texts=len(samples),
        success=bootstrap(np.array(list(success.values()))),
        loss=None if full is None else paired_bootstrap(by_prompt(full), success),
        rows=sum(sample["rows"] for sample in samples) / len(samples),
        share=sum(sample["rows"] for sample in samples) / sum(sample["full_cfg_equivalent"] for sample in samples),
        perplexity=fluency.perplexity(texts),
        repeats=sum(map(has_adjacent_repeat, texts)) / len(texts),
        words=sum(len(words(text)) for text in texts) / len(texts),
        handoff=sum(handed) / len(handed) if handed else None,
        by_prompt=success,
        falls_back=full is not None and policy != "full_cfg" and _outcomes(samples) == _outcomes(full),
    )


def _outcomes(samples: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    return sorted((sample["prompt_id"], sample["text"], sample["rows"]) for sample in samples)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no cheaper (or equally dear) point of the series beats in success."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.rows, -p.success.value)):
        if not kept or point.success.value > kept[-1].success.value:
            kept.append(point)
    return kept
