"""A handful of own sentences, and a sampler over them, with the shipped tokenizer."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from decoding.constraints.paper.cognac import Avoid
from decoding.mini.corpus import Sentence
from decoding.mini.data import ExampleSampler, tokenise
from decoding.mini.topics import Topic
from decoding.models.bert_mini.vocabulary import EOT, UNK, token_id
from decoding.models.registry import shipped_model

TEXTS = {
    "commongen": [
        ("a dog runs across the beach with a red ball.", ("dog", "ball", "beach")),
        ("the dog dropped the ball in the sand of the beach and barked.", ("dog", "ball", "beach")),
        ("two kids throw a ball to the dog at the beach.", ("dog", "ball", "beach")),
        ("a man plays the guitar on a big stage, and the crowd sings.", ("guitar", "stage", "crowd")),
        ("the crowd near the stage waits for the man with the guitar.", ("guitar", "stage", "crowd")),
    ],
    "coco": [
        ("a cat is sleeping on a chair next to a window.", ()),
        ("a white horse stands in a green field with a cow.", ()),
        ("there is a plate of food on the kitchen table.", ()),
        ("a small bird sits in the tree over the old house.", ()),
    ],
    "tatoeba": [
        ("i don't know what to do.", ()),
        ("tom said that he can't help me today.", ()),
        ("she gave me a book, but i haven't read it.", ()),
        ("this is the worst and most boring movie that i have seen.", ()),
        ("it was a wonderful day, and we loved it.", ()),
    ],
    "tinystories": [
        ("lily was sad. she lost her toy. the toy was under the bed. lily was happy and hugged the toy.", ()),
        ("the dog saw a big dog. the big dog was nice. they played all day and had a lot of fun.", ()),
        ('"come with me," said the cat. the mouse ran away, and the cat was angry.', ()),
    ],
}


def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(Path(shipped_model()) / "tokenizer.json"))


def sampler(seed: int = 0, **options: float) -> ExampleSampler:
    """A sampler over `TEXTS` and one avoidance topic."""
    spelled = tokenizer()
    unknown, end = token_id(spelled, UNK), token_id(spelled, EOT)
    corpora = {
        source: tokenise([Sentence(text, source, concepts) for text, concepts in rows], spelled, unknown)
        for source, rows in TEXTS.items()
    }
    topic = Topic("canine", Avoid("animals", ("dog", "puppy"), ("cat", "horse", "bird", "cow", "mouse")))
    return ExampleSampler(corpora, spelled, end, seed, topics=[topic], **options)
