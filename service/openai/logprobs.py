"""Log probabilities of a text's tokens, in OpenAI's two shapes.

A diffusion model has no left-to-right probability of a text. What is given is the probability that a token had in the
step that committed it: under guidance where the step was guided, before temperature and top_p. Only chosen tokens have
one, so that the list of alternatives holds the chosen token alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from decoding.engine.handle import DecodingResult
from decoding.models.protocol import TextCodec
from service.schemas import openai as wire


class ChosenToken(NamedTuple):
    """A token of a finished text."""

    id: int
    piece: str
    """Its display string."""
    logprob: float
    """Natural logarithm of its probability in the step that committed it."""


def chosen_tokens(outcome: DecodingResult, count: int, codec: TextCodec) -> list[ChosenToken]:
    """The first `count` tokens of a text that no repair has reopened."""
    probability = {
        position: value
        for step in outcome.trace.steps
        for position, value in zip(step.positions, step.confidence, strict=True)
    }
    ids = list(outcome.content[:count])
    return [
        ChosenToken(token, piece, math.log(max(probability[position], sys.float_info.min)))
        for position, (token, piece) in enumerate(zip(ids, codec.pieces(ids), strict=True))
    ]


def chat(tokens: Sequence[ChosenToken], top: int) -> wire.ChatLogprobs:
    """OpenAI's shape in chat completions; `top`: how many alternatives were asked for."""
    entries = [
        wire.TokenLogprob(token=token.piece, logprob=token.logprob, bytes=list(token.piece.encode()))
        for token in tokens
    ]
    alternatives = [[entry] if top else [] for entry in entries]
    return wire.ChatLogprobs(
        content=[
            wire.ChosenLogprob(**entry.model_dump(), top_logprobs=others)
            for entry, others in zip(entries, alternatives, strict=True)
        ]
    )


def completion(tokens: Sequence[ChosenToken], top: int, codec: TextCodec) -> wire.CompletionLogprobs:
    """OpenAI's shape in completions; offsets are characters of the text before each token."""
    ids = [token.id for token in tokens]
    return wire.CompletionLogprobs(
        tokens=[token.piece for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[{token.piece: token.logprob} for token in tokens] if top else None,
        text_offset=[len(codec.decode(ids[:count])) for count in range(len(ids))],
    )
