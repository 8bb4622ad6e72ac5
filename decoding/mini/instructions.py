"""One sampler per family: a text, the constraint that it happens to meet, and an instruction that asks for it.

Counts are taken from the text as the codec shows it, so every drawn constraint holds for what the model is trained on.
A sampler answers None where the text that it drew has nothing to ask for; it is then called again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decoding.constraints import Constraint
from decoding.constraints.compose.all_of import AllOf
from decoding.constraints.paper.collie import CollieC06a, CollieC07
from decoding.constraints.paper.ifeval import CapitalFrequency, KeywordFrequency, LetterFrequency, NoComma
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.length import LengthRatio, WordCount
from decoding.constraints.paper.sentiment import Sentiment
from decoding.constraints.text.words import collie_form, collie_words
from decoding.mini import capitals, phrasings
from decoding.mini.phrasings import compose, listing, say, times
from decoding.mini.records import MAX_TOKENS, Pool, Record

AT_LEAST, LESS_THAN = "at_least", "less_than"
KEYWORD_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
KEYWORD_WEIGHTS = (8, 12, 28, 20, 12, 3, 2, 2, 2, 11)
_NO_COMMA = NoComma()
_LETTERS = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Draw:
    """A text, its prompt and the constraints that it meets. `roomy`: the canvas must not give the length away."""

    ids: tuple[int, ...]
    prompt: str
    constraints: tuple[Constraint, ...]
    roomy: bool = False


Sampler = Callable[[Pool, random.Random], Draw | None]


def subject_of(record: Record, rng: random.Random, share: float = 0.55) -> Sequence[str]:
    """One or two content words to write about, or none."""
    if not record.content or rng.random() > share:
        return ()
    return rng.sample(record.content, min(len(record.content), rng.choice((1, 1, 2))))


def keyword_set(record: Record, rng: random.Random, count: int | None) -> list[str]:
    """The benchmark concepts of the sentence (None), or `count` words of its own, in random order."""
    if count is None:
        return rng.sample(record.concepts, len(record.concepts))
    return rng.sample(record.content, min(count, len(record.content)))


def word_range(words: int, rng: random.Random) -> WordCount:
    """A range, lower or upper bound that holds for a text of `words` words."""
    low, high = max(1, words - rng.randrange(4)), words + rng.randrange(4)
    kind = rng.random()
    if kind < 0.6:
        return WordCount(low, high)
    return WordCount(low) if kind < 0.8 else WordCount(0, high)


def keywords(pool: Pool, rng: random.Random) -> Draw | None:
    """1 to 10 keywords, sometimes with a word count or without commas; one text in eight has no keyword.

    Sentences with benchmark concepts get those seven times in ten; many keywords mostly come from long texts.
    """
    count = rng.choices(KEYWORD_COUNTS, KEYWORD_WEIGHTS)[0]
    record = pool.long(rng) if rng.random() < (0.6 if count > 5 else 0.1) else pool.any(rng)
    parts, constraints = [], list[Constraint]()
    if rng.random() < 0.88 and record.content:
        own = record.concepts and rng.random() < 0.7
        chosen = keyword_set(record, rng, None if own else count)
        constraints.append(Keywords(tuple(chosen)))
        parts.append(rng.choice(phrasings.KEYWORDS).format(listing(chosen, rng)))
    if not record.comma and rng.random() < 0.15:
        constraints.append(_NO_COMMA)
        parts.append(rng.choice(phrasings.NO_COMMA))
    counted = rng.random() < 0.2
    if counted:
        constraints.append(word_range(len(pool.text(record.ids).split()), rng))
        parts.append(constraints[-1].instruction())
    return Draw(record.ids, compose(parts, rng), tuple(constraints), counted)


def length_ratio(pool: Pool, rng: random.Random) -> Draw | None:
    """A source about the same things that is longer than the text: the text with more, or two others."""
    record = pool.any(rng)
    other = pool.companion(record, rng)
    if other is None:
        return None
    second = record if rng.random() < 0.6 else pool.companion(record, rng) or record
    sources = [other, second] if other.ids != second.ids else [other]
    source = " ".join(pool.text(r.ids) for r in rng.sample(sources, len(sources)))
    words, of = len(pool.text(record.ids).split()), len(source.split())
    low, high = (0.4, 0.8) if rng.random() < 0.7 else rng.choice(((0.2, 0.5), (0.3, 0.6), (0.5, 0.9), (0.6, 1.0)))
    if not low * of <= words <= high * of or of > 45:
        return None
    constraint = LengthRatio(source, low, high)
    span = WordCount(*constraint.word_range()).instruction()
    prompt = say(constraint, phrasings.LENGTH, rng, source=source, range=span)
    return Draw(record.ids, prompt if rng.random() < 0.5 else compose([prompt], rng), (constraint,), True)


def sentiment(pool: Pool, rng: random.Random) -> Draw | None:
    """A text of clear sentiment under the shipped classifier; both targets equally often."""
    target = rng.choice(("positive", "negative"))
    if not pool.by_sentiment[target]:
        return None
    record = rng.choice(pool.by_sentiment[target])
    constraint = Sentiment(target)
    parts = [say(constraint, phrasings.SENTIMENT[target], rng)]
    return Draw(record.ids, compose(parts, rng, subject_of(record, rng)), (constraint,))


def multi(pool: Pool, rng: random.Random) -> Draw | None:
    """Two or more keywords jointly; mostly with a length or without commas."""
    record = pool.any(rng)
    if len(record.content) < 3:
        return None
    chosen = keyword_set(record, rng, rng.choice((2, 2, 3, 4)))
    members: list[Constraint] = [Keywords(tuple(chosen))]
    kind = rng.random()
    if kind < 0.3 and not record.comma:
        members.append(_NO_COMMA)
    elif kind < 0.8:
        members.append(word_range(len(pool.text(record.ids).split()), rng))
    elif len(chosen) > 2:
        members = [Keywords(tuple(chosen[:-1])), Keywords((chosen[-1],))]
    roomy = any(isinstance(member, WordCount) for member in members)
    constraint: Constraint = AllOf(tuple(members)) if len(members) > 1 else members[0]
    return Draw(record.ids, compose([constraint.instruction()], rng), (constraint,), roomy)


def keyword_frequency(pool: Pool, rng: random.Random) -> Draw | None:
    """A word at least, or less than, so often as near to what the text has; repeated words come from longer texts."""
    relation = rng.choice((AT_LEAST, AT_LEAST, LESS_THAN))
    record: Record | None
    if relation == AT_LEAST and rng.random() < 0.8:
        record = rng.choice(pool.repeating) if pool.repeating and rng.random() < 0.3 else pool.long(rng)
        words: Sequence[str] = record.repeated if record else ()
    else:
        record = pool.any(rng)
        absent = relation == LESS_THAN and rng.random() < 0.35
        words = pool.any(rng).content if absent else record.content
    words = [word for word in words if len(word) > 2]
    if record is None or not words:
        return None
    word = rng.choice(words)
    occurrences = pool.text(record.ids).lower().count(word)
    if relation == AT_LEAST and occurrences < 2 and rng.random() < 0.7:
        return None
    if relation == AT_LEAST:
        constraint = KeywordFrequency(word, relation, max(1, occurrences - (rng.random() < 0.15)))
    else:
        constraint = KeywordFrequency(word, relation, occurrences + rng.choice((1, 1, 2)))
    how_often = times(relation, constraint.count, "time", rng)
    parts = [say(constraint, phrasings.KEYWORD_FREQUENCY, rng, word=word, times=how_often)]
    return Draw(record.ids, compose(parts, rng, subject_of(record, rng, 0.4)), (constraint,))


def letter_frequency(pool: Pool, rng: random.Random) -> Draw | None:
    """A letter at least, or less than, so often, close to its count in a text that stands out in it.

    Of several texts the one with most (fewest) of the letter is taken: a bound that most texts meet by chance would
    teach nothing.
    """
    relation = rng.choice((AT_LEAST, AT_LEAST, LESS_THAN))
    letter = rng.choice("aeiosrtnlhdcmuwbgyfpkv")
    some = [pool.long(rng) if rng.random() < 0.1 else pool.any(rng) for _ in range(rng.choice((2, 4, 8)))]
    ranked = sorted(some, key=lambda record: pool.text(record.ids).lower().count(letter) / len(record.ids))
    record = ranked[-1] if relation == AT_LEAST else ranked[0]
    occurrences = pool.text(record.ids).lower().count(letter)
    if relation == AT_LEAST:
        constraint = LetterFrequency(letter, relation, max(1, occurrences - rng.choice((0, 0, 1, 2))))
    else:
        constraint = LetterFrequency(letter, relation, occurrences + rng.choice((1, 1, 2)))
    if not occurrences and relation == AT_LEAST:
        return None
    how_often = times(relation, constraint.count, "time", rng)
    parts = [say(constraint, phrasings.LETTER_FREQUENCY, rng, letter=letter, times=how_often)]
    return Draw(record.ids, compose(parts, rng, subject_of(record, rng)), (constraint,))


def capital_frequency(pool: Pool, rng: random.Random) -> Draw | None:
    """At least, or less than, so many words in capitals: markers are put in front of some words of the text."""
    record = pool.long(rng) if rng.random() < 0.2 else pool.any(rng)
    relation = rng.choice((AT_LEAST, AT_LEAST, LESS_THAN))
    wanted = rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8)) if relation == AT_LEAST else rng.choice((0, 0, 0, 1, 1, 2, 3))
    ids = capitals.shout(record.ids, wanted, pool, rng)
    capital_words = capitals.count(pool.text(ids))
    if len(ids) > MAX_TOKENS or (relation == AT_LEAST and not capital_words):
        return None
    if relation == AT_LEAST:
        constraint = CapitalFrequency(relation, max(1, capital_words - (rng.random() < 0.15)))
    else:
        constraint = CapitalFrequency(relation, capital_words + rng.choice((1, 1, 2)))
    number = times(relation, constraint.count, "word", rng)
    how_often = times(relation, constraint.count, "time", rng)
    parts = [say(constraint, phrasings.CAPITAL_FREQUENCY, rng, number=number, times=how_often)]
    return Draw(ids, compose(parts, rng, subject_of(record, rng)), (constraint,))


def no_comma(pool: Pool, rng: random.Random) -> Draw | None:
    """No comma, mostly in texts long enough to want one."""
    record = pool.long(rng)
    if record.comma:
        return None
    parts = [say(_NO_COMMA, phrasings.NO_COMMA, rng)]
    return Draw(record.ids, compose(parts, rng, subject_of(record, rng, 0.75)), (_NO_COMMA,))


def collie_c07(pool: Pool, rng: random.Random) -> Draw | None:
    """Three random words of the text, function words and clitics too; half of the texts get rare words put in."""
    record = pool.long(rng) if rng.random() < 0.15 else pool.any(rng)
    ids, rare = pool.with_rare_words(record, rng.choice((1, 2)), rng) if rng.random() < 0.5 else (record.ids, ())
    if len(ids) > MAX_TOKENS:
        return None
    forms = list(dict.fromkeys(f for word in collie_words(pool.text(ids)) if (f := collie_form(word)).isalnum()))
    if len(forms) < 3:
        return None
    kept = [form for form in forms if form.lower() in rare]
    others = [form for form in forms if form not in kept]
    chosen = [*kept, *rng.sample(others, min(len(others), 3 - len(kept)))]
    constraint = CollieC07(tuple(rng.sample(chosen, len(chosen))))
    parts = [say(constraint, phrasings.C07, rng, listing(constraint.words, rng))]
    return Draw(ids, compose(parts, rng), (constraint,))


def collie_c06a(pool: Pool, rng: random.Random) -> Draw | None:
    """At least n words of at most m characters, mostly from texts joined because their words are short."""
    record = rng.choice(pool.plain) if pool.plain and rng.random() < 0.7 else pool.any(rng)
    text, most = pool.text(record.ids), rng.choice((5, 6, 6, 7, 7, 7, 8))
    if any(len(word) > most for word in _LETTERS.findall(text)):  # cheap, and certain
        return None
    words = collie_words(text)
    longest = max(map(len, words), default=0)
    if len(words) < 4 or longest > most:
        return None
    constraint = CollieC06a(len(words) - rng.choice((0, 0, 1, 2)), longest + (rng.random() < 0.2))
    characters = constraint.max_chars
    parts = [say(constraint, phrasings.C06A, rng, words=constraint.min_words, characters=characters)]
    return Draw(record.ids, compose(parts, rng, subject_of(record, rng, 0.3)), (constraint,), True)


def avoid(pool: Pool, rng: random.Random) -> Draw | None:
    """A text on a topic that stays clear of one branch of it."""
    if not pool.topics:
        return None
    topic, records = rng.choice(pool.topics)
    constraint = topic.constraint
    words = ", ".join(constraint.forbidden[:3])
    prompt = say(constraint, phrasings.AVOID, rng, topic=constraint.topic, branch=topic.branch, words=words)
    return Draw(rng.choice(records).ids, prompt if rng.random() < 0.5 else compose([prompt], rng), (constraint,))


FAMILIES: dict[str, tuple[float, Sampler]] = {
    "keywords": (0.30, keywords),
    "length_ratio": (0.10, length_ratio),
    "sentiment": (0.06, sentiment),
    "multi": (0.05, multi),
    "keyword_frequency": (0.08, keyword_frequency),
    "letter_frequency": (0.10, letter_frequency),
    "capital_frequency": (0.10, capital_frequency),
    "no_comma": (0.03, no_comma),
    "collie_c07": (0.09, collie_c07),
    "collie_c06a": (0.04, collie_c06a),
    "avoid": (0.05, avoid),
}
"""Share of each family in training, and its sampler."""
