"""Avoidance topics for training: the train split of the topic and forbidden-branch pairs derived from WordNet."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoding.constraints.paper.cognac import Avoid

LEAST_SHARE = 0.02
"""Least share of the topic's occurrences that the forbidden branch has, so that avoiding it means something."""


@dataclass(frozen=True, slots=True)
class Topic:
    """An avoidance constraint and the name of its forbidden branch."""

    branch: str
    constraint: Avoid


def avoidance(topic: dict[str, Any], branch: dict[str, Any]) -> Avoid:
    """The constraint of a topic and one of its branches: words seen in the corpora, commonest first.

    Words of the branch that no corpus holds stay forbidden, after the others.
    """
    counts: dict[str, int] = topic["topical_in_corpus"]
    forbidden = sorted(branch["forbidden"], key=lambda word: (-counts.get(word, 0), word))
    return Avoid(topic["topic"], tuple(forbidden), tuple(counts))


def load_pairs(data: Path, split: str, least_share: float) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(topic, branch) records of `split`, in file order."""
    with gzip.open(data / "cognac" / "wordnet_topics.jsonl.gz", "rt", encoding="utf-8") as lines:
        topics = {record["id"]: record for record in map(json.loads, lines)}
    chosen = []
    for line in (data / "cognac" / "pairs.jsonl").read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        if pair["split"] == split and pair["forbidden_share"] >= least_share:
            topic = topics[pair["topic_id"]]
            branch = next(b for b in topic["branches"] if b["id"] == pair["constraint_id"])
            chosen.append((topic, branch))
    return chosen


def load_topics(data: Path) -> list[Topic]:
    """Training topics; pairs of the other splits are kept for evaluation."""
    pairs = load_pairs(data, "train", LEAST_SHARE)
    return [Topic(branch["name"], avoidance(topic, branch)) for topic, branch in pairs]
