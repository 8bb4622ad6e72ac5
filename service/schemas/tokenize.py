"""Wire types of POST /tokenize and POST /detokenize, in the shape of other inference servers."""

from __future__ import annotations

from pydantic import Field

from service.schemas.base import MAX_CANVAS, MAX_PROMPT_CHARACTERS, Reply, Request


class TokenizeRequest(Request):
    """A text that is to be counted or looked at as tokens."""

    prompt: str = Field(max_length=MAX_PROMPT_CHARACTERS)
    model: str | None = None
    """The served model's name or hash; may be left out."""
    template: bool = False
    """Tokens of the prompt as /generate sends it to the model: in the model's template, special tokens among them."""


class TokenizeReply(Reply):
    count: int
    tokens: list[int]
    pieces: list[str]
    """One display string a token."""
    max_prompt: int
    """Tokens of the longest prompt, its template counted."""
    max_canvas: int
    """Tokens of the longest text."""


class DetokenizeRequest(Request):
    """Token ids that are to be read."""

    tokens: list[int] = Field(max_length=MAX_CANVAS)
    model: str | None = None
    """The served model's name or hash; may be left out."""


class DetokenizeReply(Reply):
    prompt: str
    """The text; what other servers call it too."""
