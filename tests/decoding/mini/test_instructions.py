"""Every training text meets the constraint that its prompt asks for; prompts, shares and canvases are as intended."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from decoding.constraints.paper.ifeval import CapitalFrequency
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.sentiment import Sentiment
from decoding.mini import data
from decoding.mini.data import ExampleSampler
from decoding.mini.instructions import FAMILIES, Draw
from decoding.mini.phrasings import CANONICAL_SHARE
from decoding.mini.records import MAX_TOKENS, PLAIN_TOKENS, join
from decoding.models.bert_mini.vocabulary import EOT, MASK, UNK, token_id
from tests.decoding.mini.samples import sampler, tokenizer

TYPES = {
    "length_ratio": "length_ratio",
    "sentiment": "sentiment",
    "keyword_frequency": "keyword_frequency",
    "letter_frequency": "letter_frequency",
    "capital_frequency": "capital_frequency",
    "no_comma": "no_comma",
    "collie_c07": "collie_c07",
    "collie_c06a": "collie_c06a",
    "avoid": "avoid",
}


@pytest.fixture(scope="module")
def examples() -> ExampleSampler:
    return sampler()


def draws(examples: ExampleSampler, family: str, count: int = 150) -> list[Draw]:
    """Draws of the family itself, without the fallback to keywords."""
    texts = [FAMILIES[family][1](examples.pool, examples.rng) for _ in range(count * 4)]
    return [drawn for drawn in texts if drawn is not None][:count]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_meets_its_constraints_as_decoded(examples: ExampleSampler, family: str) -> None:
    drawn = draws(examples, family)
    assert len(drawn) > 50
    for one in drawn:
        text = examples.pool.text(one.ids)
        for constraint in one.constraints:
            outcome = constraint.evaluate(text)
            assert outcome.satisfied, (text, constraint, outcome)
        assert len(one.ids) <= MAX_TOKENS
        assert one.prompt == one.prompt.strip() != ""


@pytest.mark.parametrize("family", TYPES)
def test_the_constraint_is_of_the_family(examples: ExampleSampler, family: str) -> None:
    assert {drawn.constraints[0].type for drawn in draws(examples, family)} == {TYPES[family]}


@pytest.mark.parametrize("family", [*TYPES, "multi"])
def test_the_servers_own_wording_is_well_represented(examples: ExampleSampler, family: str) -> None:
    drawn = draws(examples, family)
    own = sum(one.constraints[0].instruction() in one.prompt for one in drawn) / len(drawn)
    assert own > CANONICAL_SHARE - 0.15


def test_other_wordings_are_there_too(examples: ExampleSampler) -> None:
    drawn = draws(examples, "letter_frequency")
    assert any(one.constraints[0].instruction() not in one.prompt for one in drawn)


def test_both_targets_and_both_relations_occur(examples: ExampleSampler) -> None:
    targets = Counter(one.constraints[0].target for one in draws(examples, "sentiment"))
    assert set(targets) == {"positive", "negative"}
    assert min(targets.values()) > 40
    for family in ("keyword_frequency", "letter_frequency", "capital_frequency"):
        relations = {one.constraints[0].relation for one in draws(examples, family)}
        assert relations == {"at_least", "less_than"}


def test_thresholds_are_close_to_the_text(examples: ExampleSampler) -> None:
    """One step further and the text would fail: most at-least thresholds are the count itself."""
    drawn = [one for one in draws(examples, "capital_frequency") if one.constraints[0].relation == "at_least"]
    tight = sum(
        not CapitalFrequency("at_least", one.constraints[0].count + 1).evaluate(examples.pool.text(one.ids)).satisfied
        for one in drawn
    )
    assert tight > 0.7 * len(drawn)


def test_sentiment_is_clear(examples: ExampleSampler) -> None:
    for one in draws(examples, "sentiment"):
        constraint = one.constraints[0]
        assert isinstance(constraint, Sentiment)
        assert Sentiment(constraint.target, 0.8).evaluate(examples.pool.text(one.ids)).satisfied


def test_plain_keywords_are_the_largest_share_of_the_examples(examples: ExampleSampler) -> None:
    shares = {name: share for name, (share, _) in FAMILIES.items()}
    assert shares["keywords"] >= 2.5 * max(share for name, share in shares.items() if name != "keywords")
    assert sum(share for share, _ in FAMILIES.values()) == pytest.approx(1.0)
    kinds = Counter(isinstance(c, Keywords) for one in draws(examples, "keywords") for c in one.constraints[:1])
    assert kinds[True] > 4 * kinds[False]


def test_the_same_seed_gives_the_same_examples() -> None:
    first, second, other = sampler(3), sampler(3), sampler(4)
    drawn = [first.sample() for _ in range(60)]
    assert drawn == [second.sample() for _ in range(60)]
    assert drawn != [other.sample() for _ in range(60)]


def test_canvases_hold_the_text_and_some_room(examples: ExampleSampler) -> None:
    spelled = tokenizer()
    end, unknown = token_id(spelled, EOT), token_id(spelled, UNK)
    for _ in range(400):
        example = examples.sample()
        size = len(example.canvas)
        assert size % data.CANVAS_BUCKET == 0
        assert size <= data.MAX_CANVAS
        assert example.canvas[-1] == end
        assert example.canvas[0] != end
        assert unknown not in example.canvas


def test_most_texts_fill_their_canvas_whatever_its_size(examples: ExampleSampler) -> None:
    end = token_id(tokenizer(), EOT)
    drawn = [examples.sample() for _ in range(1500)]
    loose = [example.canvas.count(end) > data.CANVAS_BUCKET for example in drawn]
    assert 0.02 < sum(loose) / len(loose) < 0.2
    long = [late for late, example in zip(loose, drawn, strict=True) if len(example.canvas) >= 24]
    assert len(long) > 200
    assert sum(long) / len(long) < 0.35


def test_long_texts_are_whole_records_in_order(examples: ExampleSampler) -> None:
    pool = examples.pool
    stories = [record.ids for record in pool.corpora["tinystories"]]
    for _ in range(50):
        ids = pool.passage(examples.rng).ids
        assert len(ids) <= MAX_TOKENS
        starts = [i for i, story in enumerate(stories) if ids[: len(story)] == story]
        assert starts
        joined = [token for story in stories[starts[0] :] for token in story]
        assert list(ids) == joined[: len(ids)]


def test_plain_texts_have_short_words(examples: ExampleSampler) -> None:
    assert examples.pool.plain
    for record in examples.pool.plain:
        assert max(len(word) for word in record.content) <= 7
        assert len(record.ids) <= PLAIN_TOKENS


def test_joined_records_know_their_words(examples: ExampleSampler) -> None:
    first, second = examples.pool.corpora["commongen"][:2]
    both = join([first, second])
    assert both.ids == first.ids + second.ids
    assert set(both.content) == set(first.content) | set(second.content)
    assert set(first.content) & set(second.content) <= set(both.repeated)
    assert both.comma is (first.comma or second.comma)


def test_prompts_are_dropped_at_the_given_rate() -> None:
    dropping = sampler(0, prompt_dropout=0.5)
    assert 140 < sum(dropping.sample().dropped for _ in range(400)) < 260
    keeping = sampler(0, prompt_dropout=0.0)
    assert not any(keeping.sample().dropped for _ in range(100))


def test_batches_hide_canvas_tokens_only(examples: ExampleSampler) -> None:
    mask = token_id(tokenizer(), MASK)
    batch = next(data.batches(examples, 16, 64, mask, 0))
    hidden = batch.ids.flatten()[batch.keep]
    assert bool((hidden == mask).all())
    assert not bool((batch.targets == mask).any())
    assert bool((batch.segments.flatten()[batch.keep] == 1).all())
    assert batch.weights.sum() == pytest.approx(1.0, abs=1e-5)
    assert batch.valid.dtype == torch.bool


def test_without_topics_avoidance_falls_back_to_keywords() -> None:
    examples = sampler()
    examples.pool.topics = []
    assert FAMILIES["avoid"][1](examples.pool, examples.rng) is None
    assert examples.draw("avoid").ids
