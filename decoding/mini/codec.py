"""Text for `mini`: its prompt template (plain lower-case text), and readable text back from an uncased vocabulary."""

from __future__ import annotations

import re

from tokenizers import Tokenizer

_JOIN_LEFT = re.compile(r" ([.,!?;:%)])")
_JOIN_RIGHT = re.compile(r"([($]) ")
_CONTRACTION = re.compile(r"(?<=\w) ' (s|t|re|ll|d|m|ve)\b")
_APOSTROPHE = re.compile(r"(?<=s) '(?= \w)")
_HYPHEN = re.compile(r"(?<=\w) - (?=\w)")
_QUOTED = re.compile(r'" ([^"]*?) "')
_SENTENCE_START = re.compile(r"(^|[.!?]\"? )(\"?[a-z])")
_PRONOUN = re.compile(r"\bi(?=$|[ ,.!?;:]|'[a-z])")


def readable(text: str) -> str:
    """Detokenise: punctuation joined, contractions restored, sentences and "I" in upper case."""
    text = _QUOTED.sub(r'"\1"', text)
    text = _CONTRACTION.sub(r"'\1", text)
    text = _APOSTROPHE.sub("'", text)
    text = _HYPHEN.sub("-", text)
    text = _JOIN_RIGHT.sub(r"\1", _JOIN_LEFT.sub(r"\1", text))
    text = _PRONOUN.sub("I", text)
    return _SENTENCE_START.sub(lambda m: m[1] + m[2].upper(), text).strip()


class MiniCodec:
    """`TextCodec` of `mini`: no roles, no special tokens; what the vocabulary cannot spell becomes [UNK]."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # "[MASK]" typed by a user is text, not a mask

    def encode_prompt(self, prompt: str) -> list[int]:
        """The prompt as it is."""
        return self.encode(prompt)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return readable(self._tokenizer.decode(ids, skip_special_tokens=False))

    def pieces(self, ids: list[int]) -> list[str]:
        return [self._tokenizer.id_to_token(i) or "[UNK]" for i in ids]
