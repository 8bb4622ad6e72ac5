"""Predicates and jobs of the repair tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from decoding.constraints import Verdict
from decoding.constraints.base.constraint import Check, Constraint
from decoding.constraints.paper.length import WordCount
from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.repair import Repair
from decoding.request.job import Job
from tests.decoding.tiny import job

NEVER = WordCount(900)
"""No text of these canvases is so long."""
ALWAYS = WordCount(0)


@dataclass(frozen=True, slots=True)
class Letters(Constraint):
    """At least `count` of the letter: graded, and met by some texts of the tiny model only."""

    type: ClassVar[str] = "letters"
    letter: str
    count: int

    def _checks(self, text: str) -> tuple[Check, ...]:
        count = text.lower().count(self.letter)
        return (Check.graded("letters", count >= self.count, count / self.count, f"{count}"),)


class Broken(Letters):
    """Raises on every text."""

    def evaluate(self, text: str) -> Verdict:
        raise RuntimeError("no verdict")


def repaired(model: MiniModel, repair: Repair | None = None, predicate: Any = NEVER, **fields: Any) -> Job:
    policy = {**fields.pop("policy", {}), "repair": repair or Repair("commit_confidence")}
    fields.setdefault("preset", "full_cfg")
    return job(model, policy=policy, predicate=predicate, **fields)


def decode(engine: Engine, *jobs: Job) -> list[DecodingResult]:
    return [handle.result(600) for handle in engine.submit_all(jobs)]


def hard_predicate(engine: Engine, model: MiniModel) -> Letters:
    """One that some of the tiny model's texts meet, and most do not."""
    texts = [model.codec.decode(list(o.content)) for o in decode(engine, *(job(model, seed=s) for s in range(40)))]
    for letter in "abcdefghijklmnopqrstuvwxyz":
        for count in range(2, 8):
            met = sum(text.lower().count(letter) >= count for text in texts)
            if 2 <= met <= 12:
                return Letters(letter, count)
    raise AssertionError("no letter tells texts apart")
