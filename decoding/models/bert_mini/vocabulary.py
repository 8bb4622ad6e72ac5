"""The trimmed WordPiece vocabulary of `mini` and the embedding rows it takes over from the source encoder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

PAD, UNK, MASK, EOT = "[PAD]", "[UNK]", "[MASK]", "[EOT]"
CAP, UPPER = "[CAP]", "[UPPER]"
MARKERS = (CAP, UPPER, *(f"[unused{i}]" for i in range(10)))
SPECIAL = (PAD, UNK, MASK, EOT, *MARKERS)
WRITTEN = (EOT, CAP, UPPER)
"""Special tokens that a text may hold; the others are never emitted."""
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_SOURCE_NAMES = {EOT: ("[SEP]", "</s>"), MASK: (MASK, "<mask>"), PAD: (PAD, "<pad>")}
"""What BERT and MPNet call these tokens."""


def build_tokenizer(vocabulary: Iterable[str]) -> Tokenizer:
    """A lower-casing WordPiece tokenizer over `vocabulary` (its order gives the ids)."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def build_vocabulary(texts: Iterable[str], source: Tokenizer, min_count: int = 5) -> list[str]:
    """Special tokens, characters, whole words seen `min_count` times, and the source pieces that spell the rest."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(re.findall(r"[a-z0-9]+", text))
    words = {word for word, count in counts.items() if count >= min_count}
    pieces: Counter[str] = Counter()
    for word, count in counts.items():
        if word not in words:
            tokens = source.encode(word, add_special_tokens=False).tokens
            pieces.update(dict.fromkeys(tokens, count))
    words |= {piece for piece, count in pieces.items() if count >= 3 and piece != "[UNK]"}
    fixed = [*SPECIAL, *_PUNCTUATION, *_CHARACTERS, *(f"##{c}" for c in _CHARACTERS)]
    return fixed + sorted(words - set(fixed))


def initial_embeddings(vocabulary: list[str], source: Tokenizer, rows: Tensor) -> Tensor:
    """[V, D]: the source row where the token exists there, else the mean of the rows of its pieces."""
    initial = torch.empty(len(vocabulary), rows.shape[1])
    for index, token in enumerate(vocabulary):
        names = _SOURCE_NAMES.get(token, (token,))
        known = next((i for name in names if (i := source.token_to_id(name)) is not None), None)
        if known is None:
            ids = source.encode(token.strip("[]#"), add_special_tokens=False).ids
            initial[index] = rows[ids].mean(0)
        else:
            initial[index] = rows[known]
    return initial


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Id of a token that must exist. Raises `ValueError`."""
    known = tokenizer.token_to_id(token)
    if known is None:
        raise ValueError(f"the tokenizer has no token {token}; its tokenizer.json belongs to another model")
    return known
