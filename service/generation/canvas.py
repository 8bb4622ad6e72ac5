"""How long a canvas a request gets, how it is divided, and whether its constraint fits into it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from decoding.constraints import Constraint
from decoding.models.protocol import DenoisingModel, ModelSpec, TextCodec
from decoding.sampling.block_schedule import moving_block
from service.generation.request import CanvasRequest
from service.http.errors import ApiError, invalid

SHORTEST_WHOLE = 3
"""Characters from which a repeated phrase counts each time: one token may hold a shorter one twice."""

ROOMY = 0.75
"""Share of a family's usual canvas up to which required tokens leave room enough: gates serve that canvas alone."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """The resolved shape of a request."""

    gen_length: int
    steps: int
    block_length: int | None
    defer_eos: bool


def needed_tokens(constraint: Constraint | None, codec: TextCodec) -> int:
    """Fewest tokens of a satisfying text: those of its required phrases (shared ones once), or one for each word."""
    if constraint is None:
        return 1
    return max(required_tokens(constraint, codec).total(), constraint.minimum_words())


def required_tokens(constraint: Constraint, codec: TextCodec) -> Counter[int]:
    """The tokens of the phrases that a text must hold, and how often."""
    tokens: Counter[int] = Counter()
    for phrase, times in Counter(constraint.required_text()).items():
        repeats = times if len(phrase) >= SHORTEST_WHOLE else 1
        shortest = min(codec.encode(phrase), codec.encode(phrase.lower()), key=len)  # predicates ignore case
        tokens |= Counter({token: count * repeats for token, count in Counter(shortest).items()})
    return tokens


def fitting_canvas(request: CanvasRequest, constraint: Constraint | None, codec: TextCodec, spec: ModelSpec) -> Canvas:
    """The asked canvas with its gaps filled; raises `ApiError` (422) where the constraint cannot fit."""
    needed = needed_tokens(constraint, codec)
    if needed > spec.max_canvas:
        raise invalid(
            "constraint",
            f"needs a text of at least {needed} tokens; model {spec.name} writes at most {spec.max_canvas}",
            "constraint_too_long",
        )
    gen_length, block_length = request.gen_length, request.block_length
    if gen_length is None:
        gen_length = _comfortable(needed, constraint, spec)
        if block_length is not None:
            gen_length = -(-gen_length // block_length) * block_length
    elif gen_length < needed:
        raise invalid(request.names.gen_length, f"must be at least {needed} to hold the constraint", "canvas_too_short")
    steps = gen_length if request.steps is None else request.steps
    defer_eos = False if request.suppress_eos and request.defer_eos is None else request.defer_eos
    defaults = spec.canvas_defaults(gen_length, steps)
    if request.streams_in_blocks and block_length is None:
        block_length = defaults.block_length or moving_block(gen_length, steps)
    if block_length is not None:
        return Canvas(gen_length, steps, block_length, bool(defer_eos))
    return Canvas(gen_length, steps, defaults.block_length, defaults.defer_eos if defer_eos is None else defer_eos)


def usual_canvas(constraint: Constraint, model: DenoisingModel) -> int:
    """The canvas of a request with this constraint that names none. Raises `ValueError` where none holds it."""
    try:
        return fitting_canvas(CanvasRequest(), constraint, model.codec, model.spec).gen_length
    except ApiError as error:
        raise ValueError(str(error)) from None


def _comfortable(needed: int, constraint: Constraint | None, spec: ModelSpec) -> int:
    """The model's canvas for the family, or more: as many tokens around the required ones, within what it can write."""
    usual = spec.default_canvas
    if constraint is not None and constraint.family is not None:
        usual = spec.family_canvas.get(constraint.family, usual)
        if needed <= ROOMY * usual:
            return usual
    words = 1 if constraint is None else constraint.usual_words()
    listed = bool(constraint is not None and constraint.required_text())
    roomy = words + max(4, words // 4)
    wanted = max(2 * needed + 4, roomy if words > needed else 0) if listed else roomy
    return min(spec.max_canvas, max(usual, wanted))
