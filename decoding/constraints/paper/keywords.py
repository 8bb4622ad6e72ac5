"""Keywords (CommonGen, and the paper's keywords_multi): every key occurs as a whole word or phrase, case ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Alternatives, Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.phrases import matcher, standing_inside
from decoding.constraints.text.words import least_words_of, normalise

Forms = tuple[tuple[str, tuple[str, ...]], ...]

FAMILY_BY_SIZE: Final[Mapping[int, str]] = {
    3: "commongen-k3",
    4: "commongen-k4",
    5: "commongen-k5",
    10: "commongen-k10",
    2: "ccg-multi",
}
"""Two keywords are the paper's smallest joint set (J >= 2) and no CommonGen size; other sizes have no family."""


@register
@dataclass(frozen=True, slots=True)
class Keywords(Constraint):
    """All `keywords` occur; a keyword with `forms` is also met by any of them.

    `forms` is given as a mapping (keyword -> accepted forms) or as pairs, and kept as pairs. Raises ConstraintError for
    blank or repeated keywords, forms of a word that is no keyword, and lists beyond the limits of `fields`.
    """

    type: ClassVar[str] = "keywords"
    summary: ClassVar[str] = "Every keyword occurs as a whole word or phrase, in any order; case is ignored."
    families: ClassVar[tuple[str, ...]] = tuple(FAMILY_BY_SIZE.values())

    keywords: tuple[str, ...]
    forms: Forms = ()

    def __post_init__(self) -> None:
        keywords = fields.phrases(self.keywords, "keywords")
        fields.assign(self, keywords=keywords, forms=_checked_forms(self.forms, keywords))

    def accepted(self, keyword: str) -> tuple[str, ...]:
        """`keyword` itself, then its listed forms."""
        return (keyword, *dict(self.forms).get(keyword, ()))

    def _checks(self, text: str) -> tuple[Check, ...]:
        accepted = {keyword: [normalise(form) for form in self.accepted(keyword)] for keyword in self.keywords}
        present = matcher(tuple(form for forms in accepted.values() for form in forms)).matches(text)
        checks = []
        for keyword, forms in accepted.items():
            hit = next((form for form in forms if form in present), None)
            detail = f"found {hit!r}" if hit else f"{keyword!r} is missing"
            checks.append(Check.graded(f"keyword: {keyword}", hit is not None, 0.0, detail))
        return tuple(checks)

    @property
    def family(self) -> str | None:
        return FAMILY_BY_SIZE.get(len(self.keywords))

    def instruction(self) -> str:
        return f"Use the words: {', '.join(self.keywords)}."

    def facts(self) -> Facts:
        return Facts(items=self.keywords)

    def required_text(self) -> tuple[str, ...]:
        """The keywords that have no alternative form and do not stand inside another such keyword."""
        only = [keyword for keyword in self.keywords if len(set(map(normalise, self.accepted(keyword)))) == 1]
        inner = standing_inside(only)
        return tuple(keyword for keyword in only if normalise(keyword) not in inner)

    def whole_words(self) -> tuple[Alternatives, ...]:
        return tuple(self.accepted(keyword) for keyword in self.keywords)

    def minimum_words(self) -> int:
        """Distinct words of the keywords, each in its shortest form."""
        return max(1, least_words_of(self.whole_words()))

    def excluded_by(self, other: Constraint) -> str | None:
        """A keyword that both list."""
        if isinstance(other, Keywords):
            both = set(map(normalise, self.keywords)) & set(map(normalise, other.keywords))
            if both:
                return f"the keyword {min(both)!r} is in both; list it once"
        return None

    def to_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"type": self.type, "keywords": list(self.keywords)}
        if self.forms:
            spec["forms"] = {keyword: list(forms) for keyword, forms in self.forms}
        return spec

    @classmethod
    def schema(cls) -> dict[str, Any]:
        form_lists = fields.phrases_schema("Forms accepted in its place.", limit=fields.MAX_FORMS)
        forms: dict[str, Any] = {"type": ["object", "null"], "additionalProperties": form_lists, "default": None}
        forms["description"] = "Keyword -> further forms that count as it; matching is exact where nothing is listed."
        keywords = fields.phrases_schema("Words or phrases that must occur; list each once.")
        return fields.object_schema(cls.type, {"keywords": keywords, "forms": forms}, ["keywords"])

    @classmethod
    def example(cls) -> Self:
        return cls(("dog", "ball", "beach"), (("dog", ("dogs",)),))


def _checked_forms(forms: object, keywords: Sequence[str]) -> Forms:
    if forms is None or forms == ():
        return ()
    if isinstance(forms, tuple):
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in forms):
            raise ConstraintError("forms", "must be an object of keyword -> array of forms")
        pairs = list(forms)
    elif isinstance(forms, Mapping):
        pairs = list(forms.items())
    else:
        raise ConstraintError("forms", "must be an object of keyword -> array of forms, or null")
    known = {normalise(keyword): keyword for keyword in keywords}
    checked: dict[str, tuple[str, ...]] = {}
    for key, alternatives in pairs:
        keyword = known.get(normalise(key)) if isinstance(key, str) else None
        if keyword is None:
            raise ConstraintError("forms", f"has the key {key!r}, which is not one of the keywords")
        if keyword in checked:
            raise ConstraintError("forms", f"lists {keyword!r} twice; merge the two")
        checked[keyword] = fields.phrases(alternatives, f"forms.{keyword}", limit=fields.MAX_FORMS)
    return tuple((keyword, checked[keyword]) for keyword in keywords if keyword in checked)
