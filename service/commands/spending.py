"""What ordinary requests spend of full CFG under the default policy, measured and as a table (`astargate savings`)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.backend.backend import Backend
from service.commands.request_kinds import KINDS, RequestKind
from service.config.settings import Settings
from service.generation.prepare import Prepared, prepare
from service.generation.replies import sample
from service.openai.prepare import prepare_openai
from service.schemas.generate import GenerateRequest
from service.schemas.openai import ChatRequest, CompletionRequest

ENOUGH: Final = 0.15
"""Share of full CFG's rows that counts as a saving."""


@dataclass(frozen=True, slots=True)
class Spent:
    """One kind of request, decoded."""

    name: str
    rows: float
    """Share of full CFG's forward evaluations; rows that an end-of-text made unnecessary count as spent."""
    fell_back: bool
    source: str
    evidence: str
    decisions: str
    reason: str | None

    @property
    def before(self) -> float:
        """The same share under `on_fallback: full_cfg`."""
        return 1.0 if self.fell_back else self.rows


def measured(loaded: Backend, settings: Settings, *, samples: int, seed: int) -> list[Spent]:
    """Every kind that fits the model's canvas."""
    longest = loaded.model.spec.max_canvas
    fitting = [kind for kind in KINDS if kind.body.get("gen_length", 1) <= longest]
    return [_spent(kind, loaded, settings, samples, seed) for kind in fitting]


def _spent(kind: RequestKind, loaded: Backend, settings: Settings, samples: int, seed: int) -> Spent:
    prepared = _prepared(kind, loaded, settings, samples, seed)
    outcomes = [handle.result() for handle in loaded.engine.submit_all(prepared.jobs)]
    answers = [sample(prepared, index, outcome, loaded.model) for index, outcome in enumerate(outcomes)]
    rows = [answer.forward_evaluations for answer in answers]
    return Spent(
        name=kind.name,
        rows=statistics.fmean(1.0 - of_one.saved / of_one.full_cfg_equivalent for of_one in rows),
        fell_back=prepared.fallback is not None,
        source=answers[0].gate.source,
        evidence=answers[0].gate.evidence,
        decisions=", ".join(sorted({answer.gate.decision for answer in answers})),
        reason=answers[0].gate.fallback_reason,
    )


def _prepared(kind: RequestKind, loaded: Backend, settings: Settings, samples: int, seed: int) -> Prepared:
    body = kind.filled(seed, samples, loaded.model.spec.name)
    if kind.route == "generate":
        return prepare(GenerateRequest.model_validate(body), loaded.model, loaded.gates, settings)
    shape = CompletionRequest if kind.route == "completions" else ChatRequest
    return prepare_openai(shape.model_validate(body), loaded.model, loaded.gates, settings)


def table(spent: Sequence[Spent]) -> str:
    """Markdown: a kind a line, then the shares."""
    lines = ["| request | rows of full CFG | with `on_fallback: full_cfg` | gate | evidence | guidance |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [
        f"| {one.name} | {one.rows:.0%} | {one.before:.0%} | {one.source} | {one.evidence} | {one.decisions} |"
        for one in spent
    ]
    now, before = [one.rows for one in spent], [one.before for one in spent]
    kept = [f"* {one.name}: {one.reason}" for one in spent if one.rows == 1.0 and one.reason]
    return "\n".join(
        [*lines, "", _shares("With the default", now), _shares("With `on_fallback: full_cfg`", before), *kept]
    )


def _shares(what: str, rows: Sequence[float]) -> str:
    saving = sum(share <= 1.0 - ENOUGH for share in rows)
    return (
        f"{what}: {saving} of {len(rows)} kinds ({saving / len(rows):.0%}) save {ENOUGH:.0%} or more; the median saves "
        f"{1.0 - statistics.median(rows):.0%}."
    )
