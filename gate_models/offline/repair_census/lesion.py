"""Whether a text depends on one committed keyword token: the token is replaced or reopened, and decoding goes on.

This repeats the paper's "Commitment Is Not Carried by a Fixed Token Position". At half of the steps of a successful
full-CFG run, a committed single-token keyword is either replaced by a competitor token (*lesion*: the position is never
decided again) or set back to MASK (*reopen*), and decoding goes on at temperature 0 under guidance or under base. The
control does the same to a committed position that holds no keyword. The competitor is the most probable other token
there, as the model sees it with the position masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from decoding.constraints import parse
from decoding.constraints.paper.keywords import Keywords
from decoding.engine.handle import DecodingResult
from decoding.gates.builtin import NeverGate
from decoding.models.protocol import DenoisingModel
from decoding.repair.rounds import base_policy, guided_policy, start_of
from decoding.request.job import Anchor, Job
from decoding.sampling.block_schedule import step_at
from gate_models.offline.repair_census.arms import anchor_at

AT: float = 0.5
Decode = Callable[[Sequence[Job]], list[DecodingResult]]


def lesion_unit(
    model: DenoisingModel, outcome: DecodingResult, constraint: Mapping[str, Any], decode: Decode
) -> list[dict[str, Any]]:
    """One record an arm; empty where no single-token keyword stands on the canvas at that time."""
    predicate = parse(dict(constraint))
    if not isinstance(predicate, Keywords) or outcome.kept is None:
        return []
    job, mask_id = outcome.kept.state.job, model.spec.mask_id
    anchor = anchor_at(outcome, step_at(AT, job.steps), mask_id)
    canvas = anchor.canvas
    ids = {model.codec.encode(word)[0]: word for word in predicate.keywords if len(model.codec.encode(word)) == 1}
    keyword = next((index for index, token in enumerate(canvas) if token in ids), None)
    if keyword is None:
        return []
    other = next(
        (
            i
            for i, token in enumerate(canvas)
            if token not in ids and token != mask_id and token not in model.spec.end_ids
        ),
        None,
    )
    word = ids[canvas[keyword]]
    once = _occurrences(word, outcome.kept.text) == 1
    arms, jobs = [], []
    for role, position in (("keyword", keyword), ("control", other)):
        if position is None:
            continue
        for action in ("lesion", "reopen"):
            token = competitor(model, job, canvas, position) if action == "lesion" else mask_id
            changed = (*canvas[:position], token, *canvas[position + 1 :])
            for guided in (True, False):
                jobs.append(_continuation(job, replace(anchor, canvas=changed), mask_id, guided=guided))
                arms.append({"role": role, "action": action, "guided": guided, "position": position, "once": once})
    return [
        arm | _seen(model, done, word, canvas[keyword], keyword) for arm, done in zip(arms, decode(jobs), strict=True)
    ]


def _seen(model: DenoisingModel, done: DecodingResult, word: str, token: int, position: int) -> dict[str, Any]:
    count = _occurrences(word, model.codec.decode(list(done.content)))
    return {"restored": done.tokens[position] == token, "present": count > 0, "occurrences": count}


def _occurrences(word: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


def _continuation(job: Job, anchor: Anchor, mask_id: int, *, guided: bool) -> Job:
    step, place = start_of(job, anchor, anchor.canvas.count(mask_id))
    return replace(
        job,
        policy=guided_policy(job.policy) if guided else base_policy(job.policy),
        gate=NeverGate(),
        sampling=replace(job.sampling, temperature=0.0),
        purpose="repair",
        start=anchor.canvas,
        start_step=step,
        start_place=place,
    )


@torch.inference_mode()
def competitor(model: DenoisingModel, job: Job, canvas: Sequence[int], position: int) -> int:
    """The most probable token at `position` other than the one there, under the conditional model."""
    row = [*job.prompt_ids, *canvas]
    at = len(job.prompt_ids) + position
    row[at] = model.spec.mask_id
    ids = torch.tensor([row], device=model.device)
    lengths = torch.tensor([len(row)], device=model.device)
    prompts = torch.tensor([len(job.prompt_ids)], device=model.device)
    features = model.encode(ids, prompts, lengths, always_mask=False)
    logits = model.project(features[at : at + 1])[0]
    logits[[*model.spec.suppressed_ids, *model.spec.end_ids, canvas[position]]] = float("-inf")
    return int(logits.argmax())
