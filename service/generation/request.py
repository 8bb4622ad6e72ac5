"""What a client asks of one canvas, in one form for /generate, /committor and the OpenAI routes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from service.schemas.generate import CanvasBody
from service.schemas.policy import PolicyRequest

_UNSET_IS_NONE: Final = ("render_constraint", "confidence")
"""Fields with a default that are refused in some requests, but only where the client set them."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Names that a route gives to the fields which OpenAI calls otherwise: an error must name what the client sent."""

    prompt: str = "prompt"
    gen_length: str = "gen_length"
    template: str = "template"

    def in_reason(self, reason: str) -> str:
        """A gate's reason, which lists fields of the regime, with this route's name of the canvas length."""
        return reason.replace("gen_length", self.gen_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasRequest:
    """A canvas to be decoded. None stands for a field that the client left out."""

    prompt: str = ""
    negative_prompt: str | None = None
    """What guidance leads away from, in place of the masked prompt."""
    history: tuple[tuple[str, str], ...] | None = None
    """Earlier turns of a chat as (role, text), before the user's `prompt`; None: the request is no chat."""
    constraint: dict[str, Any] | None = None
    family: str | None = None
    render_constraint: bool | None = None
    template: str | None = None
    """A text with blanks; then the blanks are what is decoded."""
    policy: PolicyRequest | None = None
    gen_length: int | None = None
    steps: int | None = None
    block_length: int | None = None
    streams_in_blocks: bool = False
    """Cut a canvas into blocks where neither the client nor the model does, so that its text can be streamed."""
    temperature: float | None = None
    top_p: float | None = None
    confidence: str | None = None
    eos_fill: bool = False
    suppress_eos: bool = False
    defer_eos: bool | None = None
    seed: int | None = None
    samples: int = 1
    deadline_s: float | None = None
    arrived: float | None = None
    """`time.monotonic()` value from which the deadline counts; None: from now."""
    names: FieldNames = FieldNames()

    @classmethod
    def of(cls, body: CanvasBody, **others: Any) -> CanvasRequest:
        """The request of a body of /generate or /committor; `others` add to its fields or take their place."""
        shared = {item.name for item in fields(cls)} & set(type(body).model_fields)
        given = {name: getattr(body, name) for name in shared}
        given |= {name: None for name in _UNSET_IS_NONE if name not in body.model_fields_set}
        return cls(**given | others)
