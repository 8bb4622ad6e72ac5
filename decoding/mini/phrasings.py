"""Wordings of the instructions in training; half of them are the constraint's own, as the server says it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from decoding.constraints import Constraint

CANONICAL_SHARE = 0.5
OPENINGS = (
    "write one sentence.",
    "write one sentence.",
    "write a sentence.",
    "write a short text.",
    "describe a scene.",
    "tell me something.",
    "",
)
SUBJECTS = (
    "write about {}.",
    "write about {}.",
    "write one sentence about {}.",
    "write a sentence about {}.",
    "write a short text about {}.",
    "tell me about {}.",
)
KEYWORDS = (
    "use the words: {}.",
    "use the words: {}.",
    "use the words: {}.",
    "include the words {}.",
    "the text must contain {}.",
    "keywords: {}.",
)
NO_COMMA = ("do not use any commas.", "do not use any commas.", "use no commas.", "write without commas.")
LENGTH = (
    "shorten this text: {source} {range}",
    "make this shorter: {source} {range}",
    "summarize: {source} {range}",
    "{range} say this in fewer words: {source}",
)
SENTIMENT = {
    "positive": (
        "write something positive.",
        "use a positive tone.",
        "the text should sound happy.",
        "be positive.",
        "say something nice.",
    ),
    "negative": (
        "write something negative.",
        "use a negative tone.",
        "the text should sound bad.",
        "be negative.",
        "complain about something.",
    ),
}
KEYWORD_FREQUENCY = (
    "the word {word} should appear {times}.",
    "mention {word} {times}.",
    "write the word {word} {times}.",
    "{word} must occur {times}.",
)
LETTER_FREQUENCY = (
    "the letter {letter} should appear {times}.",
    "include the letter {letter} {times}.",
    "the letter {letter} must occur {times}.",
    "write {letter} {times}.",
)
CAPITAL_FREQUENCY = (
    "{number} should be in capitals.",
    "write {number} in all capital letters.",
    "use {number} in upper case.",
    "words in all capital letters must appear {times}.",
)
C07 = (
    "generate a sentence with the words {}.",
    "write a sentence that contains {}.",
    "include {} in the sentence.",
    "the sentence must have the words {}.",
)
C06A = (
    "write at least {words} words with at most {characters} letters each.",
    "use {words} or more words. no word may be longer than {characters} characters.",
    "every word must have {characters} characters or fewer. use at least {words} words.",
)
AVOID = (
    "write about {topic} but not about {branch}.",
    "write about {topic}. do not mention {branch}.",
    "talk about {topic} and leave out {branch}.",
    "name some {topic}. never use the words {words}.",
)


def listing(words: Sequence[str], rng: random.Random) -> str:
    """Words as a list: commas, or commas and a final "and"."""
    if len(words) > 1 and rng.random() < 0.3:
        return ", ".join(words[:-1]) + " and " + words[-1]
    return ", ".join(words)


def times(relation: str, count: int, noun: str, rng: random.Random) -> str:
    """ "at least 3 times", "less than 3 times", "fewer than 3 times"; `noun` in the singular."""
    bound = "at least" if relation == "at_least" else rng.choice(("less than", "fewer than"))
    return f"{bound} {count} {noun}{'' if count == 1 else 's'}"


def say(constraint: Constraint, templates: Sequence[str], rng: random.Random, *values: str, **named: object) -> str:
    """The constraint's own instruction, or one of the templates, filled."""
    if rng.random() < CANONICAL_SHARE:
        return constraint.instruction()
    return rng.choice(templates).format(*values, **named)


def compose(parts: Sequence[str], rng: random.Random, subject: Sequence[str] = ()) -> str:
    """An opening, which names the subject where one is given, and the parts in random order."""
    shuffled = rng.sample(list(parts), len(parts))
    if subject:
        opening = rng.choice(SUBJECTS).format(listing(subject, rng))
    else:
        opening = rng.choice(OPENINGS) or ("" if parts else "write one sentence.")
    return " ".join([opening, *shuffled]).strip()
