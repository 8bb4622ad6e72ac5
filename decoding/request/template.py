"""A text with blanks, such as "Dear [blank:2], thank you for [blank:3-8].": what stands around them stays as it is.

A blank is `[blank:N]`, N tokens, or `[blank:A-B]`, from A to B tokens. A backslash before a bracket or a backslash
makes it a plain character, so that `\\[blank:3]` is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from decoding.models.protocol import ModelSpec, TextCodec
from decoding.sampling.noise import NoiseKey

_PIECE: Final = re.compile(r"\\([\\\[\]])|\[blank(?:(:[^\[\]]*)?\]|:[^\[\]]*)")
_LENGTH: Final = re.compile(r":\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


class TemplateError(ValueError):
    """A template that cannot be read or does not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A place to fill with `shortest` to `longest` tokens."""

    shortest: int
    longest: int

    @property
    def lengths(self) -> range:
        """The lengths that it may have."""
        return range(self.shortest, self.longest + 1)

    def __str__(self) -> str:
        return (
            f"[blank:{self.shortest}]" if self.shortest == self.longest else f"[blank:{self.shortest}-{self.longest}]"
        )


@dataclass(frozen=True, slots=True)
class Template:
    """n blanks between n + 1 fixed texts, each of which may be empty."""

    literals: tuple[str, ...]
    blanks: tuple[Blank, ...]

    @staticmethod
    def parse(source: str) -> Template:
        """Read a template. Raises `TemplateError` where a blank is malformed or there is none."""
        literals, blanks, done = [""], list[Blank](), 0
        for match in _PIECE.finditer(source):
            literals[-1] += source[done : match.start()]
            done = match.end()
            if match[1] is not None:
                literals[-1] += match[1]
                continue
            blanks.append(_blank(match[0], match[2] or ""))
            literals.append("")
        literals[-1] += source[done:]
        if not blanks:
            raise TemplateError("has no blank; write [blank:3] for three tokens, or [blank:3-8] for three to eight")
        return Template(tuple(literals), tuple(blanks))

    @property
    def settled(self) -> bool:
        """Whether every blank has one length."""
        return all(blank.shortest == blank.longest for blank in self.blanks)

    @property
    def longest(self) -> Template:
        """The template with the longest length for each blank."""
        return self.with_lengths([blank.longest for blank in self.blanks])

    def drawn(self, seed: int) -> Template:
        """The template with a length for each blank that `seed` draws from its range, each as likely as the others."""
        draw = NoiseKey(seed, purpose="template").uniforms(0, len(self.blanks))
        lengths = [blank.lengths[int(u * len(blank.lengths))] for u, blank in zip(draw, self.blanks, strict=True)]
        return self.with_lengths(lengths)

    def with_lengths(self, lengths: Sequence[int]) -> Template:
        """The template with one length for each blank."""
        return Template(self.literals, tuple(Blank(length, length) for length in lengths))

    def source(self) -> str:
        """The template as it is written; `parse` reads it back."""
        first, *rest = [re.sub(r"[\\\[\]]", r"\\\g<0>", literal) for literal in self.literals]
        return first + "".join(f"{blank}{literal}" for blank, literal in zip(self.blanks, rest, strict=True))

    def canvas(self, codec: TextCodec, spec: ModelSpec) -> TemplateCanvas:
        """The canvas of a settled template; an end-of-text follows the text where the model has room for one.

        Raises `TemplateError` where the text cannot be encoded or is too long for the model.
        """
        ids, spans = list[int](), list[tuple[int, int]]()
        for literal, blank in zip(self.literals, self.blanks, strict=False):
            ids += _encoded(literal.rstrip(" "), codec, spec)  # spaces belong to the token that will stand there
            spans.append((len(ids), len(ids) + blank.longest))
            ids += [spec.mask_id] * blank.longest
        ids += _encoded(self.literals[-1], codec, spec)
        if len(ids) > spec.max_canvas:
            raise TemplateError(f"has {len(ids)} tokens; model {spec.name} writes at most {spec.max_canvas}")
        if len(ids) < spec.max_canvas:
            ids.append(spec.end_ids[0])
        return TemplateCanvas(self.literals, tuple(ids), tuple(spans))


@dataclass(frozen=True, slots=True)
class TemplateCanvas:
    """A template as a canvas [L]: the ids of its fixed texts, MASK in the blanks."""

    literals: tuple[str, ...]
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Start and stop of each blank."""

    @property
    def open(self) -> tuple[int, ...]:
        """The positions of the blanks."""
        return tuple(position for start, stop in self.spans for position in range(start, stop))

    def fillings(self, codec: TextCodec, tokens: Sequence[int], without: int | None = None) -> tuple[str, ...]:
        """What stands in each blank of the finished canvas `tokens`; the token at `without` is left out.

        A blank is read behind all that precedes it, as capitals and joints depend on that.
        """
        return tuple(_read(codec, tokens, start, stop, without) for start, stop in self.spans)

    def text(self, codec: TextCodec, tokens: Sequence[int], without: int | None = None) -> str:
        """The whole text: the fixed ones as they were given, and between them what stands in the blanks."""
        first, *rest = self.literals
        filled = zip(self.fillings(codec, tokens, without), rest, strict=True)
        return first + "".join(filling + literal for filling, literal in filled)


def _blank(whole: str, inside: str) -> Blank:
    match = _LENGTH.fullmatch(inside)
    if match is None:
        raise TemplateError(
            f"has the blank {whole}; write [blank:3] or [blank:3-8], or \\[blank if brackets are part of the text"
        )
    shortest, longest = int(match[1]), int(match[2] or match[1])
    if not 1 <= shortest <= longest:
        raise TemplateError(
            f"has the blank {whole}; a blank has at least one token, and a range begins with its shortest"
        )
    return Blank(shortest, longest)


def _encoded(text: str, codec: TextCodec, spec: ModelSpec) -> list[int]:
    """Ids of a fixed text; one of spaces alone has none."""
    if not text.strip(" "):
        return []
    try:
        text.encode()
        ids = codec.encode(text)
    except UnicodeEncodeError:  # JSON can hold a lone surrogate
        raise TemplateError("is not valid Unicode text") from None
    except ValueError as error:
        raise TemplateError(f"cannot be encoded: {error}") from None
    if special := {spec.mask_id, *spec.end_ids} & set(ids):
        raise TemplateError(
            f"holds a text that the model reads as {codec.pieces(sorted(special)[:1])[0]}; leave it out"
        )
    return ids


def _read(codec: TextCodec, tokens: Sequence[int], start: int, stop: int, without: int | None) -> str:
    inside = [token for at, token in enumerate(tokens[start:stop], start) if at != without]
    before = list(tokens[:start])
    left, both = codec.decode(before), codec.decode(before + inside)
    filling = both[len(left) :] if both.startswith(left) else codec.decode(inside)
    return filling.strip()
