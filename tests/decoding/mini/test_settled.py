"""What is shown of a text before it is finished stays: no rule of `readable` reaches further back."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.models.bert_mini.codec import MiniCodec, readable, settled_text
from tests.decoding.mini.samples import tokenizer

CODEC = MiniCodec(tokenizer())
TRICKY = (
    *"'\"\"'-.,!?;:%()$i[]s_&",
    *("s", "t", "re", "ll", "d", "m", "ve", "i", "a", "dogs", "dog", "ball", "3", "5", "é"),
    *("[CAP]", "[UPPER]", "[CAP]", "[UPPER]", "[UNK]"),
)
JOINED = ("##s", "##ing", "##d")


def raw(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" ##", "").removeprefix("##")


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from((*TRICKY, *TRICKY, *JOINED)), max_size=16))
def test_settled_text_is_a_prefix_of_every_continuation(tokens: list[str]) -> None:
    final = readable(raw(tokens))
    for count in range(len(tokens) + 1):
        settled = settled_text(raw(tokens[:count]))
        assert final.startswith(settled), (tokens[:count], settled, final)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(("the", "dog", "dogs", "a", "ball", "runs", "3", "é")), min_size=8, max_size=16))
def test_plain_words_never_wait_for_the_end(words: list[str]) -> None:
    """Marks may hold text back (an open quotation, a case mark); plain words are shown while the text grows."""
    assert settled_text(raw(words))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 15_000), max_size=12))
def test_any_ids(ids: list[int]) -> None:
    known = [i for i in ids if CODEC.pieces([i]) != ["[UNK]"]]
    for count in range(len(known)):
        assert CODEC.decode(known).startswith(CODEC.settled(known[:count]))


def test_text_appears_word_by_word() -> None:
    words = "the dog runs to the ball and the dog plays".split()
    shown = [settled_text(" ".join(words[:count])) for count in range(len(words) + 1)]
    assert shown[-1] == "The dog runs to the ball"
    assert all(later.startswith(sooner) for sooner, later in pairwise(shown))


def test_an_open_quotation_waits() -> None:
    assert settled_text('he said " come to the ball and the') == "He said"
    assert settled_text('he said " come to the ball " and the dog ran to') == 'He said "come to the ball" and'
