"""Make a label sheet: texts of the model over families and policies, and texts by people.

`astargate judge-sheet --data DIR --out SHEET.jsonl` writes it. `references` draws the texts by people that stand beside
the model's in tables.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from decoding.mini.corpus import clean, load_corpora
from decoding.models.bert_mini.codec import readable
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from gate_models.offline.benchmarks.tasks import SUBTASKS, TaskPrompt, load_task
from gate_models.offline.evaluation.run import decode
from gate_models.offline.evaluation.settings import EvaluateSettings
from gate_models.offline.judge.labels.sheet import SheetText, text_id, write_sheet
from gate_models.policies.names import parse_policy

POLICIES: Final[tuple[tuple[str, float], ...]] = (
    ("full_cfg:w1", 0.0),
    ("full_cfg:w1", 0.6),
    ("full_cfg:w1", 1.0),
    ("full_cfg:w2", 0.0),
    ("full_cfg:w2", 0.6),
    ("full_cfg:w2", 1.0),
    ("base", 0.6),
    ("base", 1.0),
    ("drained:0.7", 0.6),
    ("drained:0.7:k8", 0.6),
    ("value", 1.0),
)
HUMAN: Final = {"commongen-dev": 28, "collie-gutenberg": 12, "tatoeba": 14, "tinystories": 16, "coco": 10}
"""Texts by people of each collection."""
REFERENCES: Final = 100
"""Of each number of concepts, three to five."""


def own_texts(
    model: DenoisingModel, policies: Iterable[tuple[str, float]], tasks: Sequence[str], count: int, seed: int
) -> Iterator[SheetText]:
    """`count` texts of every task and policy, each of another prompt."""
    for task in tasks:
        prompts = load_task(task)
        random.Random(f"{seed} {task}").shuffle(prompts)
        waiting = cycle(prompts)
        for name, temperature in policies:
            chosen = [next(waiting) for _ in range(count)]
            yield from _decoded(model, task, chosen, name, temperature, seed)


def _decoded(
    model: DenoisingModel, task: str, prompts: list[TaskPrompt], name: str, temperature: float, seed: int
) -> Iterator[SheetText]:
    settings = EvaluateSettings(tasks=(task,), policies=(name,), temperature=temperature, seed=seed)
    samples, _ = decode(model, parse_policy(name), prompts, settings, f"{task} {name} T={temperature:g}")
    for sample in samples:
        yield SheetText(
            id=text_id(sample.text),
            text=sample.text,
            source="ours",
            family=task,
            policy=f"{name} T={temperature:g}",
            model=model.spec.hash,
            prompt=sample.prompt_id,
            seed=seed,
            satisfied=sample.satisfied,
        )


def human_texts(data: Path, counts: dict[str, int], seed: int) -> Iterator[SheetText]:
    """Random texts of each collection, written as our model's texts are where their own form would tell."""
    collections = {
        "commongen-dev": _references(data),
        "collie-gutenberg": _gutenberg(data),
        "tatoeba": _lines(data, "tatoeba_eng"),
        **{name: [readable(one.text) for one in load_corpora(data)[name]] for name in ("tinystories", "coco")},
    }
    for name, count in counts.items():
        for text in random.Random(f"{seed} {name}").sample(sorted(set(collections[name])), count):
            yield SheetText(text_id(text), text, "human", name, "human", seed=seed)


def _references(data: Path) -> list[str]:
    lines = (data / "commongen" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    cleaned = [clean(target) for line in lines for target in json.loads(line)["targets"]]
    return [readable(text) for text in cleaned if text]


def references(data: Path, without: set[str], seed: int) -> list[dict[str, object]]:
    """Random CommonGen dev references of three, four and five concepts, one a concept set."""
    lines = (data / "commongen" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    random.Random(f"{seed} references").shuffle(records)
    groups: dict[int, list[dict[str, object]]] = {3: [], 4: [], 5: []}
    for record in records:
        group = groups[len(record["concepts"])]
        texts = [readable(text) for target in record["targets"] if (text := clean(target))]
        new = [text for text in texts if text not in without]
        if new and len(group) < REFERENCES:
            group.append({"text": new[0], "concepts": record["concepts"]})
    return [reference for group in groups.values() for reference in group]


def _gutenberg(data: Path) -> list[str]:
    """In the public domain; COLLIE's sentences from news are not."""
    paths = [data / "collie" / f"guten_{family}.jsonl" for family in ("c07", "c06a")]
    records = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return [" ".join(record["example"].split()) for record in records if len(record["example"].split()) <= 40]


def _lines(data: Path, name: str) -> list[str]:
    """Sentences of four words or more with their own capitals."""
    import gzip  # noqa: PLC0415 - here alone

    with gzip.open(data / "corpus" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
        return [" ".join(line.split()) for line in lines if len(line.split()) >= 4]


def read_policies(names: str) -> tuple[tuple[str, float], ...]:
    """Policies with temperatures from "base@0.6,full_cfg:w1@1". Raises `ValueError` for what cannot be read."""
    policies = []
    for name in names.split(","):
        policy, _, temperature = name.strip().partition("@")
        parse_policy(policy)
        try:
            policies.append((policy, float(temperature)))
        except ValueError:
            raise ValueError(f"{name.strip()!r} needs a temperature, such as {policy}@0.6") from None
    return tuple(policies)


def run(
    data: Path,
    out: Path,
    count: int,
    seed: int,
    model_name: str,
    policies: tuple[tuple[str, float], ...] = POLICIES,
) -> list[SheetText]:
    """Write a sheet of `count` texts a family and policy and of texts by people, in an order that gives no hint."""
    with compute_mode(1):
        model = load_model(model_name)
        texts = [*own_texts(model, policies, SUBTASKS, count, seed), *human_texts(data, HUMAN, seed)]
    distinct = list({text.id: text for text in texts if text.text.strip()}.values())
    random.Random(seed).shuffle(distinct)
    write_sheet(out, distinct)
    return distinct
