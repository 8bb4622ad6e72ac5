"""Constraints, a function for each type of the server; `client.constraints()` describes them.

Numbers and lengths are checked by the server. A type that this client does not know can be given as a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from astargate_client.transport.specs import Constraint, ConstraintLike


def _constraint(kind: str, **fields: Any) -> Constraint:
    """A constraint without the fields that were left out."""
    return Constraint({"type": kind, **{name: value for name, value in fields.items() if value is not None}})


def _comparison(at_least: int | None, less_than: int | None) -> dict[str, Any]:
    if (at_least is None) == (less_than is None):
        raise TypeError("give either at_least or less_than")
    if at_least is not None:
        return {"relation": "at_least", "count": at_least}
    return {"relation": "less_than", "count": less_than}


def keywords(*words: str, forms: Mapping[str, Sequence[str]] | None = None) -> Constraint:
    """Every word or phrase occurs, case aside; `forms` lists other forms that count as a word ("dog": ["dogs"])."""
    if not words or not all(word.strip() for word in words):
        raise ValueError('keywords() needs words, such as keywords("dog", "ball"); none of them may be empty')
    return _constraint("keywords", keywords=words, forms=forms)


def length_ratio(source: str, low: float | None = None, high: float | None = None) -> Constraint:
    """`low` to `high` times as many words as `source` has; the server's defaults where left out."""
    return _constraint("length_ratio", source=source, low=low, high=high)


def word_count(min_words: int = 0, max_words: int | None = None) -> Constraint:
    """Between `min_words` and `max_words` words, bounds included."""
    return _constraint("word_count", min_words=min_words, max_words=max_words)


def sentiment(target: Literal["positive", "negative"], threshold: float | None = None) -> Constraint:
    """A classifier gives the polarity at least `threshold` probability."""
    return _constraint("sentiment", target=target, threshold=threshold)


def keyword_frequency(keyword: str, *, at_least: int | None = None, less_than: int | None = None) -> Constraint:
    """The keyword occurs at least, or less than, so many times."""
    return _constraint("keyword_frequency", keyword=keyword, **_comparison(at_least, less_than))


def letter_frequency(letter: str, *, at_least: int | None = None, less_than: int | None = None) -> Constraint:
    """The letter occurs at least, or less than, so many times, case aside."""
    return _constraint("letter_frequency", letter=letter, **_comparison(at_least, less_than))


def capital_frequency(*, at_least: int | None = None, less_than: int | None = None) -> Constraint:
    """At least, or less than, so many words are in capitals."""
    return _constraint("capital_frequency", **_comparison(at_least, less_than))


def no_comma() -> Constraint:
    """No comma."""
    return _constraint("no_comma")


def collie_c07(*words: str) -> Constraint:
    """Every one of `words` is a word of the text (COLLIE c07)."""
    return _constraint("collie_c07", words=words)


def collie_c06a(min_words: int, max_chars: int) -> Constraint:
    """At least `min_words` words, none longer than `max_chars` characters (COLLIE c06a)."""
    return _constraint("collie_c06a", min_words=min_words, max_chars=max_chars)


def avoid(topic: str, forbidden: Sequence[str], topical: Sequence[str] | None = None) -> Constraint:
    """About `topic` without a `forbidden` word; where `topical` words are given, one of them occurs."""
    return _constraint("avoid", topic=topic, forbidden=tuple(forbidden), topical=topical and tuple(topical))


def all_of(*constraints: ConstraintLike) -> Constraint:
    """All of them at once; `one & other` says the same."""
    return _constraint("all_of", constraints=constraints)


def any_of(*constraints: ConstraintLike) -> Constraint:
    """At least one of them; `one | other` says the same."""
    return _constraint("any_of", constraints=constraints)


def none_of(*constraints: ConstraintLike) -> Constraint:
    """None of them; `~one` says the same of one."""
    return _constraint("none_of", constraints=constraints)


def regex(pattern: str, mode: Literal["search", "full"] | None = None, *, meaning: str | None = None) -> Constraint:
    """The pattern matches a part of the text, or all of it; `meaning` says in words what it matches, for the prompt.

    ECMA 262 without back references and look-around.
    """
    return _constraint("regex", pattern=pattern, mode=mode, meaning=meaning)


def contains(*phrases: str, case_sensitive: bool | None = None, inside_words: bool | None = None) -> Constraint:
    """Every phrase occurs; with `inside_words=False` as whole words alone."""
    return _constraint("contains", phrases=phrases, case_sensitive=case_sensitive, inside_words=inside_words)


def not_contains(*phrases: str, case_sensitive: bool | None = None, inside_words: bool | None = None) -> Constraint:
    """No phrase occurs; with `inside_words=False` they may stand inside longer words."""
    return _constraint("not_contains", phrases=phrases, case_sensitive=case_sensitive, inside_words=inside_words)


def starts_with(phrase: str, *, case_sensitive: bool | None = None) -> Constraint:
    """The text begins with the phrase."""
    return _constraint("starts_with", phrase=phrase, case_sensitive=case_sensitive)


def ends_with(phrase: str, *, case_sensitive: bool | None = None) -> Constraint:
    """The text ends with the phrase."""
    return _constraint("ends_with", phrase=phrase, case_sensitive=case_sensitive)


def json_value(schema: Mapping[str, Any] | None = None) -> Constraint:
    """The text is JSON and, where a JSON Schema is given, meets it."""
    return _constraint("json", json_schema=schema)


def characters(min_characters: int | None = None, max_characters: int | None = None) -> Constraint:
    """Between `min_characters` and `max_characters` characters, bounds included."""
    return _constraint("characters", min_characters=min_characters, max_characters=max_characters)


def sentences(min_sentences: int | None = None, max_sentences: int | None = None) -> Constraint:
    """Between `min_sentences` and `max_sentences` sentences, bounds included."""
    return _constraint("sentences", min_sentences=min_sentences, max_sentences=max_sentences)


def one_of(*labels: str) -> Constraint:
    """The text is one of the labels and nothing else."""
    return _constraint("one_of", labels=labels)


def predicate(name: str) -> Constraint:
    """A predicate in Python that is installed on the server holds; `client.constraints().predicates` lists them."""
    return _constraint("python", name=name)
