"""Tokenised sentences, and the indexes from which the instruction samplers draw."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from decoding.constraints.paper.sentiment import shipped_sentiment
from decoding.mini.corpus import Sentence
from decoding.mini.topics import Topic
from decoding.models.bert_mini.codec import MiniCodec
from decoding.models.bert_mini.vocabulary import CAP, UPPER, token_id

STOP_WORDS = frozenset(
    """
    a an the and or but if then than that this these those of in on at by for from to with into onto over
    under as is are was were be been being am do does did done doing has have had having he she it they we
    you i me him her them us his hers its their our my your mine yours who whom whose which what when where
    why how not no so too very can could will would shall should may might must there here up down out off
    again just all any some each every both few more most other such only own same s t d ll re ve m don didn
    doesn isn wasn won one's
    """.split()
)
SOURCE_WEIGHTS = {"commongen": 0.5, "coco": 0.17, "tatoeba": 0.18, "tinystories": 0.15}
MAX_TOKENS = 124
PLAIN_TOKENS = 60
"""Longest joined text of short words."""
_INDEXED = 40_000
_SCORED = {"commongen": 12_000, "coco": 4_000, "tatoeba": 14_000, "tinystories": 12_000}
_PER_TOPIC = 50
_PLAIN = 20_000
PLAIN_WORD = 7
"""Letters of the longest word of a plain text: COLLIE's c06a asks for 4 to 7."""


@dataclass(frozen=True, slots=True)
class Record:
    """A tokenised sentence with what instructions can be drawn from it."""

    ids: tuple[int, ...]
    content: tuple[str, ...]
    concepts: tuple[str, ...]
    repeated: tuple[str, ...]
    """Content words that occur twice or more."""
    comma: bool


def tokenise(sentences: list[Sentence], tokenizer: Tokenizer, unknown: int) -> list[Record]:
    """Records of the sentences that the vocabulary can spell in `MAX_TOKENS` tokens."""
    records = []
    for start in range(0, len(sentences), 4096):
        chunk = sentences[start : start + 4096]
        encodings = tokenizer.encode_batch([sentence.text for sentence in chunk], add_special_tokens=False)
        for sentence, encoding in zip(chunk, encodings, strict=True):
            if len(encoding.ids) > MAX_TOKENS or unknown in encoding.ids:
                continue
            words = [w for w in re.findall(r"[a-z0-9]+", sentence.text) if w not in STOP_WORDS and len(w) > 1]
            content = tuple(dict.fromkeys(words))
            repeated: tuple[str, ...] = ()
            if len(content) < len(words):
                repeated = tuple(word for word, count in Counter(words).items() if count > 1)
            record = Record(tuple(encoding.ids), content, sentence.concepts, repeated, "," in sentence.text)
            records.append(record)
    return records


def _stride(records: Sequence[Record], most: int) -> Sequence[Record]:
    return records[:: max(1, -(-len(records) // most))]


def join(parts: Sequence[Record]) -> Record:
    """The texts of `parts` one after the other."""
    if len(parts) == 1:
        return parts[0]
    held = Counter(word for part in parts for word in part.content)
    repeated = dict.fromkeys([word for part in parts for word in part.repeated])
    repeated |= dict.fromkeys(word for word, count in held.items() if count > 1)
    ids = tuple(token for part in parts for token in part.ids)
    return Record(ids, tuple(held), (), tuple(repeated), any(part.comma for part in parts))


class Pool:
    """Records by source, by word, by CommonGen concept set, by sentiment and by topic. Built once per process."""

    def __init__(
        self, corpora: dict[str, list[Record]], tokenizer: Tokenizer, topics: Sequence[Topic] = (), seed: int = 0
    ) -> None:
        self.codec = MiniCodec(tokenizer)
        self.corpora = corpora
        self.sources = [source for source in SOURCE_WEIGHTS if corpora.get(source)]
        self.source_weights = [SOURCE_WEIGHTS[source] for source in self.sources]
        self.pieces = [tokenizer.id_to_token(i) or "" for i in range(tokenizer.get_vocab_size())]
        self.cap, self.upper = token_id(tokenizer, CAP), token_id(tokenizer, UPPER)
        self.by_word: dict[str, list[Record]] = {}
        self.by_concepts: dict[tuple[str, ...], list[Record]] = {}
        self.repeating: list[Record] = []
        self.plain: list[Record] = []
        self.rare: list[tuple[str, tuple[int, ...]]] = []
        """Words that take several pieces, with their ids."""
        self._index(tokenizer)
        self._join_plain(random.Random(seed))
        self.by_sentiment = self._score()
        self.topics = self._match(topics, random.Random(seed))

    def _index(self, tokenizer: Tokenizer) -> None:
        for source in self.sources:
            for record in _stride(self.corpora[source], _INDEXED):
                for word in record.content:
                    self.by_word.setdefault(word, []).append(record)
                if record.repeated:
                    self.repeating.append(record)
        for record in self.corpora.get("commongen", []):
            if record.concepts:
                self.by_concepts.setdefault(tuple(sorted(record.concepts)), []).append(record)

        vocabulary = frozenset(self.pieces)
        words = [word for word in self.by_word if word not in vocabulary and word.isalpha()]
        encoded = tokenizer.encode_batch(words, add_special_tokens=False)
        self.rare = [(word, tuple(encoding.ids)) for word, encoding in zip(words, encoded, strict=True)]

    def with_rare_words(self, record: Record, count: int, rng: random.Random) -> tuple[tuple[int, ...], set[str]]:
        """Ids of the text with `count` content words (as far as there are) replaced by rare ones, and those words.

        Names in an instruction are mostly new to the model: what it has to learn is to copy them, piece by piece.
        """
        places = [i for i, token in enumerate(record.ids) if self.pieces[token] in record.content]
        chosen = dict(
            zip(
                rng.sample(places, min(count, len(places))),
                rng.sample(self.rare, min(count, len(self.rare))),
                strict=False,
            )
        )
        ids: list[int] = []
        for index, token in enumerate(record.ids):
            ids.extend(chosen[index][1] if index in chosen else (token,))
        return tuple(ids), {word for word, _ in chosen.values()}

    def _join_plain(self, rng: random.Random) -> None:
        """Texts of short words, of all lengths: neighbours in their source, joined while their words stay short."""
        for source in self.sources:
            open_parts: list[Record] = []
            most = rng.randint(10, PLAIN_TOKENS)
            for record in _stride(self.corpora[source], _PLAIN) if source != "tinystories" else self.corpora[source]:
                short = max((len(word) for word in record.content), default=0) <= PLAIN_WORD
                if short and sum(len(part.ids) for part in open_parts) + len(record.ids) <= most:
                    open_parts.append(record)
                    continue
                if open_parts:
                    self.plain.append(join(open_parts))
                open_parts, most = [record] if short else [], rng.randint(10, PLAIN_TOKENS)

    def _score(self) -> dict[str, list[Record]]:
        """Records of clear sentiment (P >= 0.8 of the target) under the shipped classifier."""
        by_polarity: dict[str, list[Record]] = {"positive": [], "negative": []}
        for source in self.sources:
            records = _stride(self.corpora[source], _SCORED[source])
            scores = shipped_sentiment().probability_positive([self.text(record.ids) for record in records])
            for record, positive in zip(records, scores, strict=True):
                if not 0.2 < positive < 0.8:
                    by_polarity["positive" if positive > 0.5 else "negative"].append(record)
        return by_polarity

    def _match(self, topics: Sequence[Topic], rng: random.Random) -> list[tuple[Topic, list[Record]]]:
        """For each topic, records that are on topic and free of the forbidden branch."""
        matched = []
        for topic in topics:
            words = [word for word in topic.constraint.topical if word in self.by_word]
            kept: list[Record] = []
            for word in rng.choices(words, k=_PER_TOPIC) if words else ():
                record = rng.choice(self.by_word[word])
                if topic.constraint.evaluate(self.text(record.ids)).satisfied:
                    kept.append(record)
            if len(kept) >= 10:
                matched.append((topic, kept))
        return matched

    def text(self, ids: Sequence[int]) -> str:
        """The text as the server would show it: what every constraint is checked on."""
        return self.codec.decode(list(ids))

    def any(self, rng: random.Random, source: str | None = None) -> Record:
        """A random record, of `source` where that is there."""
        chosen = source if source in self.sources else rng.choices(self.sources, self.source_weights)[0]
        return rng.choice(self.corpora[chosen])

    def companion(self, record: Record, rng: random.Random) -> Record | None:
        """Another record about the same concepts, or else one that shares a content word."""
        same = self.by_concepts.get(tuple(sorted(record.concepts)), []) if record.concepts else []
        if len(same) < 2 or rng.random() < 0.3:
            words = [word for word in record.content if len(self.by_word.get(word, ())) > 1]
            same = self.by_word[rng.choice(words)] if words else []
        other = rng.choice(same) if same else None
        return other if other is not None and other.ids != record.ids else None

    def passage(self, rng: random.Random) -> Record:
        """Consecutive pieces of the stories, which stand in order: up to 20 to `MAX_TOKENS` tokens."""
        stories = self.corpora.get("tinystories") or self.corpora[self.sources[0]]
        start, most = rng.randrange(len(stories)), rng.randint(20, MAX_TOKENS)
        parts = [stories[start]]
        for record in stories[start + 1 : start + 9]:
            if sum(len(part.ids) for part in parts) + len(record.ids) > most:
                break
            parts.append(record)
        return join(parts)

    def long(self, rng: random.Random) -> Record:
        """A text that fills a long canvas: a passage, or two companions."""
        return self.passage(rng) if rng.random() < 0.6 else self.joined(rng) or self.passage(rng)

    def joined(self, rng: random.Random, source: str | None = None) -> Record | None:
        """Two companions one after the other, where they fit."""
        first = self.any(rng, source)
        second = self.companion(first, rng)
        if second is None or len(first.ids) + len(second.ids) > MAX_TOKENS:
            return None
        return join([first, second])
