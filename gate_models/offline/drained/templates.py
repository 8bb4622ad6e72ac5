"""Requests to fill blanks, for the measurement of a pooled threshold: texts of the model's own with words cut out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from decoding.engine.engine import Engine
from decoding.engine.scheduler import Scheduler
from decoding.models.protocol import DenoisingModel
from decoding.policy.presets import resolve_policy
from decoding.request.template import Blank, Template
from gate_models.offline.drained.draws import Draw, draws
from gate_models.offline.drained.settings import PooledSettings

FIRST_INDEX: Final = 1_000_000
"""Of the first template, so that more pairs of free canvases leave its number as it is."""
FEWEST: Final = 3
MOST: Final = 12
"""Words that are cut out of a text, together."""


def template_draws(model: DenoisingModel, settings: PooledSettings) -> Iterator[Draw]:
    """`settings.templates` requests with the prompts, weights, temperatures and orders of free canvases.

    A text is decoded for each prompt without guidance. One or two stretches of its words become blanks.
    """
    sources = list(
        islice(draws(model.spec, replace(settings, pairs=settings.pairs + settings.templates)), settings.templates)
    )
    for index, (source, text) in enumerate(zip(sources, _texts(model, sources, settings.seed), strict=True)):
        drawn = _cut(source, text, model, np.random.default_rng((settings.seed, FIRST_INDEX + index)))
        if drawn is not None:
            yield replace(drawn, index=FIRST_INDEX + index)


def _texts(model: DenoisingModel, sources: Sequence[Draw], seed: int) -> list[str]:
    """A text for each prompt, on the canvas and at the temperature of its draw."""
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=2**62))
    jobs = [source.job(model, seed) for source in sources]
    base = resolve_policy("base", {})
    noise = [replace(job.noise, arm=f"template|{job.noise.arm}") for job in jobs]
    handles = engine.submit_all(replace(job, policy=base, noise=own) for job, own in zip(jobs, noise, strict=True))
    while engine.step():
        pass
    return [model.codec.decode(list(handle.result().content)) for handle in handles]


def _cut(source: Draw, text: str, model: DenoisingModel, rng: np.random.Generator) -> Draw | None:
    """`source` with a template in place of its canvas; None where the text has no words to cut."""
    words = text.split()
    if len(words) <= FEWEST:
        return None
    count = int(rng.integers(FEWEST, min(MOST, len(words) - 1) + 1))
    sizes = [count] if count < 2 * FEWEST or rng.random() < 0.5 else [count // 2, count - count // 2]
    literals, blanks, at = list[str](), list[Blank](), 0
    for number, size in enumerate(sizes):
        behind = sum(sizes[number:]) + (len(sizes) - number - 1)
        start = int(rng.integers(at, len(words) - behind + 1))
        hidden = " ".join(words[start : start + size])
        literals.append(" ".join(["", *words[at:start], ""]) if at else " ".join([*words[:start], ""]).lstrip())
        length = max(1, len(model.codec.encode(hidden)))
        blanks.append(Blank(length, length))
        at = start + size
    literals.append(" ".join(["", *words[at:]]) if at < len(words) else "")
    template = Template(tuple(literals), tuple(blanks))
    if len(template.canvas(model.codec, replace(model.spec, max_canvas=2**16)).ids) > model.spec.max_canvas:
        return None
    steps = sum(blank.longest for blank in blanks)
    return replace(source, template=template.source(), steps=steps, block_length=None)
