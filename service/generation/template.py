"""The canvas of a request that gives a text with blanks, and of each of its samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from decoding.constraints import Constraint
from decoding.models.protocol import DenoisingModel, TextCodec
from decoding.request.job import Job
from decoding.request.template import Template, TemplateCanvas, TemplateError
from service.generation.canvas import Canvas, required_tokens
from service.generation.request import CanvasRequest
from service.http.errors import invalid

_UNUSED: Final = ("gen_length", "block_length", "eos_fill", "defer_eos")
"""Fields of a free canvas."""


def parsed(request: CanvasRequest) -> Template:
    """The template of a request that has one. Raises `ApiError` (422) where it cannot be read."""
    try:
        return Template.parse(request.template or "")
    except TemplateError as error:
        raise invalid(request.names.template, str(error)) from None


def template_canvas(
    request: CanvasRequest, constraint: Constraint | None, model: DenoisingModel
) -> tuple[Canvas, TemplateCanvas]:
    """The canvas of a request with a template, each range of lengths at its longest.

    Raises `ApiError` (422) where it cannot be decoded.
    """
    name, template = request.names.template, parsed(request).longest
    for field in _UNUSED:
        if getattr(request, field):
            called = request.names.gen_length if field == "gen_length" else field
            raise invalid(called, f"is not used with {name}, whose blanks say what is decoded; leave it out")
    try:
        canvas = template.canvas(model.codec, model.spec)
    except TemplateError as error:
        raise invalid(name, str(error)) from None
    if constraint is not None:
        _check_room(constraint, canvas, model.codec, name)
    steps = len(canvas.open) if request.steps is None else request.steps
    return Canvas(len(canvas.ids), steps, None, False), canvas


def _check_room(constraint: Constraint, canvas: TemplateCanvas, codec: TextCodec, name: str) -> None:
    """Raise where the blanks cannot hold what the constraint requires and the fixed texts lack."""

    def written(tokens: Counter[int]) -> Counter[str]:
        return sum((Counter({codec.decode([token]).strip().lower(): n}) for token, n in tokens.items()), Counter[str]())

    given = Counter(token for at, token in enumerate(canvas.ids) if at not in set(canvas.open))
    lacking = (written(required_tokens(constraint, codec)) - written(given)).total()
    if lacking > len(canvas.open) or constraint.minimum_words() > len(canvas.ids):
        needed = max(lacking, constraint.minimum_words() - len(canvas.ids) + len(canvas.open))
        message = f"must have blanks of at least {needed} tokens together to hold the constraint"
        raise invalid(name, message, "canvas_too_short")


def sample_job(job: Job, request: CanvasRequest, model: DenoisingModel) -> Job:
    """`job`, which has a sample's noise and the longest canvas of the template, with the lengths that its seed draws.

    Steps that the request left open are as many as there are positions to fill.
    """
    canvas = parsed(request).drawn(job.noise.seed).canvas(model.codec, model.spec)
    count = len(canvas.open)
    return replace(
        job,
        template=canvas,
        gen_length=len(canvas.ids),
        steps=count if request.steps is None else job.steps,
    )


def check_settled(request: CanvasRequest, reason: str) -> None:
    """Raise `ApiError` (422), with the `reason` for it, where a blank of the request's template has a range."""
    if request.template is not None and not parsed(request).settled:
        raise invalid(request.names.template, f"has a range of lengths, and {reason}; give each blank one length")
