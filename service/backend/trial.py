"""One denoising step before a server is ready: a checkpoint that loads may still be nonsense."""

from __future__ import annotations

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingError
from decoding.engine.runner import Runner
from decoding.models.checkpoint import CheckpointError
from decoding.models.protocol import DenoisingModel
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job
from decoding.request.validation import JobError
from decoding.sampling.noise import NoiseKey

PROMPT = "Write a sentence."
LONGEST = 8
"""Tokens of the canvas."""


def try_out(model: DenoisingModel, *, invariant: bool = False) -> None:
    """Decode a short canvas in one guided step. Raises `CheckpointError` that says what is wrong with the model."""
    spec = model.spec
    if not 1 <= spec.default_canvas <= spec.max_canvas or spec.max_prompt < 1:
        sizes = (
            f"prompts of {spec.max_prompt} tokens and canvases of {spec.max_canvas} (by default {spec.default_canvas})"
        )
        raise CheckpointError(f"model {spec.name} allows {sizes}: nothing can be asked of it; check its config.json")
    job = Job(
        prompt_ids=tuple(model.codec.encode_prompt(PROMPT)),
        gen_length=min(LONGEST, spec.max_canvas),
        steps=1,
        policy=resolve_policy("full_cfg", {}),
        noise=NoiseKey(0),
    )
    engine = Engine(model, runner=Runner(model, invariant=invariant))  # apart: what is served is counted
    try:
        handle = engine.submit(job)
        while not handle.done and engine.step():
            pass
        handle.result(0)
    except (DecodingError, JobError, TimeoutError) as error:
        reason = f"model {spec.name} was loaded but cannot decode: {error}"
        raise CheckpointError(f"{reason}; check its config.json and weights") from error
