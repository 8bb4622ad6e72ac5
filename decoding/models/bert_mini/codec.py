"""Text for `mini`: its prompt template (plain lower-case text), and readable text back from an uncased vocabulary.

Upper case is two marker tokens in front of a word: `[CAP]` capitalises it, `[UPPER]` writes all of it in capitals.
Sentence starts and the pronoun I need no marker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers import Tokenizer

from decoding.models.bert_mini.vocabulary import CAP, UPPER, token_id

_DANGLING = re.compile(r"\[(?:CAP|UPPER)\](?: (?![a-z0-9])|$)")
_MARKED = re.compile(r"\[(CAP|UPPER)\] ([a-z0-9]+(?:['-][a-z0-9]+)*)")
_JOIN_LEFT = re.compile(r" ([.,!?;:%)])")
_JOIN_RIGHT = re.compile(r"([($]) ")
_CONTRACTION = re.compile(r"(?<=\w) ' (s|t|re|ll|d|m|ve)\b")
_APOSTROPHE = re.compile(r"(?<=s) '(?= \w)")
_HYPHEN = re.compile(r"(?<=\w) - (?=\w)")
_QUOTED = re.compile(r'" ([^"]*?) "')
_SENTENCE_START = re.compile(r"(^|[.!?]\"? )(\"?[a-z])")
_PRONOUN = re.compile(r"\bi(?=$|[ ,.!?;:]|'[a-z])")
_CASED_WORD = re.compile(r"[A-Za-z0-9]*[A-Z][A-Za-z0-9]*(?:['-][A-Za-z0-9]+)*")
_LOOKAHEAD = 4
"""Words from the end that may still change: three that a rule looks ahead, and the last, which may be unfinished."""
_OPENS_SENTENCE = re.compile(r"(?:^|[.!?]\"?\s)\s*\"?$")


def readable(text: str) -> str:
    """Detokenise: punctuation joined, contractions restored, markers applied, sentences and "I" in upper case.

    A marker in front of anything but a word is dropped; of several markers in a row the last one holds.
    """
    marked = "[" in text
    if marked:
        text = _DANGLING.sub("", text)
    text = _QUOTED.sub(r'"\1"', text)
    text = _CONTRACTION.sub(r"'\1", text)
    text = _APOSTROPHE.sub("'", text)
    text = _HYPHEN.sub("-", text)
    if marked:
        text = _HYPHEN.sub("-", _MARKED.sub(_apply_marker, text))
    text = _JOIN_RIGHT.sub(r"\1", _JOIN_LEFT.sub(r"\1", text))
    text = _PRONOUN.sub("I", text)
    return _SENTENCE_START.sub(lambda m: m[1] + m[2].upper(), text).strip()


def settled_text(raw: str) -> str:
    """The beginning of `readable(raw)` that stays as it is whatever follows.

    Every rule looks at most three words ahead, but for a quotation mark that may yet be closed: it waits for the next.
    """
    raw = _DANGLING.sub("", raw)  # first, as `readable` does: it decides which quotation marks make a pair
    spaces = [match.start() for match in re.finditer(" ", raw)]
    cut = min(spaces[-_LOOKAHEAD] if len(spaces) >= _LOOKAHEAD else 0, _open_quote(raw))
    settled, now = readable(raw[:cut]), readable(raw)
    agreed = next(
        (i for i, (a, b) in enumerate(zip(settled, now, strict=False)) if a != b), min(len(settled), len(now))
    )
    return settled[:agreed]


def _open_quote(raw: str) -> int:
    """Where the last quotation mark is that no other has closed; the text's length where there is none."""
    last = raw.rfind('"')
    closed = any(match.end() == last + 1 for match in _QUOTED.finditer(raw))
    return len(raw) if last < 0 or closed else last


def _apply_marker(match: re.Match[str]) -> str:
    return match[2].upper() if match[1] == "UPPER" else match[2][0].upper() + match[2][1:]


def marker_of(word: str, before: str) -> str | None:
    """The marker that `word` needs after the text `before`: none where `readable` writes it so by itself."""
    if word == "I" or word.startswith("I'"):
        return None
    rest = word[1:]
    if word[0].isupper() and rest == rest.lower():
        if _OPENS_SENTENCE.search(before[-8:] if len(before) > 8 else before):
            return None
        return UPPER if len(word) == 1 else CAP
    return UPPER if word.isupper() else None


class MiniCodec:
    """`TextCodec` of `mini`: no roles, no special tokens; what the vocabulary cannot spell becomes [UNK]."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # "[MASK]" typed by a user is text, not a mask

    def encode_prompt(self, prompt: str) -> list[int]:
        """The prompt as it is, in lower case."""
        return self._plain(prompt)

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """The contents of all turns as one text: this model knows no roles."""
        return self._plain("\n".join(content for _, content in messages))

    def encode(self, text: str) -> list[int]:
        """Ids of canvas text, with a marker in front of every word whose capitals `decode` would not restore."""
        ids: list[int] = []
        done = 0
        for match in _CASED_WORD.finditer(text):
            marker = marker_of(match[0], text[: match.start()])
            if marker is not None:
                ids += [*self._plain(text[done : match.start()]), token_id(self._tokenizer, marker)]
                done = match.start()
        return ids + self._plain(text[done:])

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return readable(self._tokenizer.decode(ids, skip_special_tokens=False))

    def settled(self, ids: list[int]) -> str:
        return settled_text(self._tokenizer.decode(ids, skip_special_tokens=False))

    def pieces(self, ids: list[int]) -> list[str]:
        return [self._tokenizer.id_to_token(i) or "[UNK]" for i in ids]
