"""Sets of constraints that no text can meet together, found before anything is decoded.

Only certain contradictions are reported: each rule compares what one member demands of every text with what another
forbids. Words joined by nothing but punctuation ("dog/ball") are not considered when words are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from decoding.constraints.base import Constraint, ConstraintError
from decoding.constraints.cognac import Avoid, with_plurals
from decoding.constraints.collie import CollieC06a, CollieC07
from decoding.constraints.ifeval import (
    AT_LEAST,
    LESS_THAN,
    CapitalFrequency,
    KeywordFrequency,
    LetterFrequency,
    NoComma,
)
from decoding.constraints.keywords import Keywords
from decoding.constraints.length import LengthRatio, WordCount
from decoding.constraints.sentiment import Sentiment
from decoding.constraints.text import least_words_of, longest_collie_word, matcher, normalise, plural, required_words

Alternatives = tuple[str, ...]


def check_compatible(members: Sequence[Constraint]) -> None:
    """Raise ConstraintError, naming the later member of a pair, when two of `members` exclude each other."""
    _check_words(members)
    for first, second in permutations(range(len(members)), 2):
        for rule in _RULES:
            reason = rule(members[first], members[second])
            if reason:
                later, earlier = max(first, second), min(first, second)
                raise ConstraintError(f"constraints[{later}]", f"contradicts constraints[{earlier}]: {reason}")
    _check_topics(members)


def demands(member: Constraint) -> Iterator[Alternatives]:
    """Phrases demanded as whole words by `member`: of each tuple, a satisfying text holds at least one entry."""
    if isinstance(member, Keywords):
        for keyword in member.keywords:
            yield member.accepted(keyword)
    elif isinstance(member, CollieC07):
        for word in member.words:
            yield (word,)


def _most_words(member: Constraint) -> int | None:
    if isinstance(member, WordCount):
        return member.max_words
    return member.word_range()[1] if isinstance(member, LengthRatio) else None


def _check_words(members: Sequence[Constraint]) -> None:
    """Raise ConstraintError when the most words that a member allows are too few for another, or for all together."""
    for index, member in enumerate(members):
        most = _most_words(member)
        if most is None:
            continue
        for other_index, other in enumerate(members):
            least = other.minimum_words()
            if least > most:
                later, earlier = max(index, other_index), min(index, other_index)
                need = f"constraints[{other_index}] needs at least {plural(least, 'word')}"
                reason = f"contradicts constraints[{earlier}]: {need}, constraints[{index}] allows at most {most}"
                raise ConstraintError(f"constraints[{later}]", reason)
        together = least_words(members)
        if together > most:
            raise ConstraintError(
                f"constraints[{index}]", f"allows at most {plural(most, 'word')}; the others need {together}"
            )


def least_words(members: Sequence[Constraint]) -> int:
    """Lower bound on the words of a text that satisfies all `members`."""
    keywords = [phrases for member in members if isinstance(member, Keywords) for phrases in demands(member)]
    return max(least_words_of(keywords), *(member.minimum_words() for member in members))


def _check_topics(members: Sequence[Constraint]) -> None:
    avoids = [(index, member) for index, member in enumerate(members) if isinstance(member, Avoid)]
    forbidden = tuple(word for _, member in avoids for word in member.forbidden)
    for index, member in avoids:
        if member.topical and not member.allowed_topical(forbidden):
            reason = "every topical word is forbidden by the avoid constraints together; list one that may be used"
            raise ConstraintError(f"constraints[{index}]", reason)


def _frequency(first: Constraint, second: Constraint) -> str | None:
    """Too many occurrences demanded for an upper bound: of keywords (also inside one another), letters or capitals."""
    if isinstance(first, CapitalFrequency) and isinstance(second, CapitalFrequency):
        return _crossed(first.relation, first.count, second.relation, second.count, "capital words")
    if not isinstance(second, (KeywordFrequency, LetterFrequency)):
        return None
    if isinstance(first, LetterFrequency) and isinstance(second, LetterFrequency):
        inside = int(first.letter.lower() == second.letter.lower())
    elif isinstance(first, KeywordFrequency):
        inside = _contained(second, (first.keyword,))
    else:
        return None
    what = f"occurrences of {_counted(second)!r}"
    return _crossed(first.relation, first.count * inside, second.relation, second.count, what)


def _crossed(first: str, least: int, second: str, bound: int, what: str) -> str | None:
    if first == AT_LEAST and second == LESS_THAN and least >= bound:
        return f"at least {least} and less than {bound} {what} are demanded"
    return None


def _counted(member: KeywordFrequency | LetterFrequency) -> str:
    return member.keyword if isinstance(member, KeywordFrequency) else member.letter


def _contained(member: KeywordFrequency | LetterFrequency, phrases: Alternatives) -> int:
    """Occurrences that any of `phrases` brings along; 0 beyond ASCII, where case changes lengths."""
    key = _counted(member).lower()
    if all(normalise(phrase) == normalise(key) for phrase in phrases):
        return 1
    if not key.isascii() or not all(phrase.isascii() for phrase in phrases):
        return 0
    return min(phrase.lower().count(key) for phrase in phrases)


def _frequency_of_demanded(first: Constraint, second: Constraint) -> str | None:
    """Demanded words that hold more of a letter or keyword than is allowed."""
    if not isinstance(second, (KeywordFrequency, LetterFrequency)) or second.relation != LESS_THAN:
        return None
    total, counted = 0, set[str]()
    for alternatives in demands(first):
        words = frozenset(word for phrase in alternatives for word in required_words(phrase))
        if words & counted:  # a word shared with an earlier phrase may be the same occurrence
            continue
        counted |= words
        total += _contained(second, alternatives)
    return _crossed(AT_LEAST, total, LESS_THAN, second.count, f"occurrences of {_counted(second)!r}")


def _comma(first: Constraint, second: Constraint) -> str | None:
    if not isinstance(second, NoComma):
        return None
    demanded = list(demands(first))
    if isinstance(first, KeywordFrequency) and first.relation == AT_LEAST:
        demanded.append((first.keyword,))
    if isinstance(first, LetterFrequency) and first.relation == AT_LEAST:
        demanded.append((first.letter,))
    with_comma = next((phrases[0] for phrases in demanded if all("," in phrase for phrase in phrases)), None)
    return f"{with_comma!r} contains a comma" if with_comma else None


def _forbidden(first: Constraint, second: Constraint) -> str | None:
    if not isinstance(second, Avoid):
        return None
    banned = matcher(with_plurals(second.forbidden))
    for alternatives in demands(first):
        if all(banned.found(phrase) for phrase in alternatives):
            return f"{alternatives[0]!r} is demanded and forbidden"
    return None


def _word_length(first: Constraint, second: Constraint) -> str | None:
    if not isinstance(second, CollieC06a):
        return None
    demanded = list(demands(first))
    if isinstance(first, KeywordFrequency) and first.relation == AT_LEAST and first.keyword.isalnum():
        demanded.append((first.keyword,))
    for alternatives in demanded:
        if all(phrase.isascii() and longest_collie_word(phrase) > second.max_chars for phrase in alternatives):
            return f"{alternatives[0]!r} has more than {plural(second.max_chars, 'character')}"
    return None


def _polarity(first: Constraint, second: Constraint) -> str | None:
    if not isinstance(first, Sentiment) or not isinstance(second, Sentiment) or first.target == second.target:
        return None
    if first.threshold + second.threshold < 1.0:
        return None
    return "no text is both positive and negative; keep one, or lower the thresholds"


def _repeated(first: Constraint, second: Constraint) -> str | None:
    if first == second:
        return "the two are equal; keep one"
    if isinstance(first, Keywords) and isinstance(second, Keywords):
        both = set(map(normalise, first.keywords)) & set(map(normalise, second.keywords))
        if both:
            return f"the keyword {min(both)!r} is in both; list it once"
    return None


_RULES: tuple[Callable[[Constraint, Constraint], str | None], ...] = (
    _repeated,
    _frequency,
    _frequency_of_demanded,
    _comma,
    _forbidden,
    _word_length,
    _polarity,
)
