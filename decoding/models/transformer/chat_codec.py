"""Text for chat models: the checkpoint's own tokenizer, its turn markers by id, user text never read as markers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from decoding.models.checkpoint import CheckpointError

Message = tuple[str, str]
"""(role, content)."""
_PROBE = "Is 2 × 3 = 6?\n\n  Say so.\n"


class Marker(str):
    """A special token in a template; every other piece of a template is text."""

    __slots__ = ()


Template = Callable[[Sequence[Message]], list[str]]
"""Messages -> pieces, `Marker` or plain text, two texts never side by side."""


def plain_template(messages: Sequence[Message]) -> list[str]:
    """No turns (base checkpoints): the contents, joined by newlines."""
    return ["\n".join(content for _, content in messages)]


class ChatCodec:
    """`TextCodec` over a fast tokenizer. Special tokens come from the template alone; typed by a user they are text."""

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        self._template = template

    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of one user turn, ready for the assistant's answer."""
        return self.encode_chat([("user", prompt)])

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation, ready for the assistant's answer."""
        ids: list[int] = []
        for piece in self._template(messages):
            ids += [self._marker(piece)] if isinstance(piece, Marker) else self.encode(piece)
        return ids

    def _marker(self, token: str) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise ValueError(f"the tokenizer has no token {token}")
        return int(token_id)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text. Raises `ValueError` where the text is not valid Unicode (lone surrogates)."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is not valid Unicode: {error}") from None
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def settled(self, ids: list[int]) -> str:
        """All but the replacement characters at the end, which may be the first bytes of a character."""
        return self.decode(ids).rstrip("\ufffd")

    def pieces(self, ids: list[int]) -> list[str]:
        return [str(self._tokenizer.decode([i], skip_special_tokens=False)) for i in ids]

    def check_template(self, where: Path) -> None:
        """Raise `CheckpointError` unless encoding piece by piece equals encoding the rendered template in one go."""
        ours = self.encode_chat([("user", _PROBE)])
        self._tokenizer.encode_special_tokens = False
        try:
            whole = self._tokenizer.encode("".join(self._template([("user", _PROBE)])), add_special_tokens=False).ids
        finally:
            self._tokenizer.encode_special_tokens = True
        if ours != whole:
            raise CheckpointError(
                f"{where} joins text across the turn markers of this architecture; it is not this model's tokenizer"
            )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from an optional file; empty where the file does not exist. Raises `CheckpointError`."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def tokenizer_files(folder: Path) -> tuple[str, ...]:
    """The files that define the tokenizer: tokenizer.json, or vocab.json and merges.txt with the added tokens."""
    if (folder / "tokenizer.json").is_file():
        return tuple(name for name in ("tokenizer.json", "tokenizer_config.json") if (folder / name).is_file())
    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} has no tokenizer: neither tokenizer.json nor {name}")
    optional = ("added_tokens.json", "tokenizer_config.json")
    return ("vocab.json", "merges.txt", *(name for name in optional if (folder / name).is_file()))


def load_tokenizer(folder: Path) -> Tokenizer:
    """tokenizer.json, or (Dream ships none) the Qwen2 byte-level BPE of vocab.json and merges.txt with its added
    tokens.

    Raises `CheckpointError` naming the file at fault.
    """
    names = tokenizer_files(folder)
    try:
        if names[0] == "tokenizer.json":
            return Tokenizer.from_file(str(folder / names[0]))
        from transformers import Qwen2Tokenizer  # noqa: PLC0415 - heavy, and needed for these files alone

        tokenizer = Qwen2Tokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    except Exception as error:  # the parser raises bare exceptions
        raise CheckpointError(f"{folder / names[0]} cannot be read as a tokenizer: {error}") from None
    backend: Tokenizer = tokenizer.backend_tokenizer
    _add_tokens(backend, folder)
    return backend


def _add_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    settings = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    special = {str(entry["content"]): bool(entry.get("special")) for entry in settings.values()}
    wanted = {str(entry["content"]): int(index) for index, entry in settings.items()}
    wanted |= {token: int(index) for token, index in read_json(folder / "added_tokens.json").items()}
    for token, index in sorted(wanted.items(), key=lambda item: item[1]):
        added = AddedToken(token, special=special.get(token, True), normalized=False)
        (tokenizer.add_special_tokens if added.special else tokenizer.add_tokens)([added])
        if tokenizer.token_to_id(token) != index:
            raise CheckpointError(
                f"{folder / 'added_tokens.json'}: token {token} should be {index} but becomes "
                f"{tokenizer.token_to_id(token)}; a file is missing"
            )


def require_id(tokenizer: Tokenizer, token: str, where: Path) -> int:
    """Id of a special token that the architecture needs. Raises `CheckpointError` where the tokenizer lacks it."""
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise CheckpointError(f"{where} has no token {token}; it is not the tokenizer of this architecture")
    return int(token_id)


def resolve_mask(tokenizer: Tokenizer, token: str, config: Mapping[str, Any], where: Path) -> int:
    """MASK: the tokenizer's `token`, with which config.json's `mask_token_id` must agree where it is set.

    Raises `CheckpointError` where they disagree (a tokenizer of another model) or the token is missing.
    """
    mask_id, declared = require_id(tokenizer, token, where), config.get("mask_token_id")
    if declared is not None and declared != mask_id:
        raise _disagreement(where, f"{token} the id {mask_id}", f"mask_token_id {declared}")
    return mask_id


def resolve_ends(
    tokenizer: Tokenizer, tokens: Sequence[str], config: Mapping[str, Any], where: Path
) -> tuple[int, ...]:
    """End-of-text ids, in the order of `tokens`; `eos_token_id` (one or a list) must be among them where it is set.

    Raises `CheckpointError` as `resolve_mask` does.
    """
    ids = tuple(require_id(tokenizer, token, where) for token in tokens)
    declared = config.get("eos_token_id")
    for index in declared if isinstance(declared, list) else [] if declared is None else [declared]:
        if index not in ids:
            raise _disagreement(where, f"{' and '.join(tokens)} the ids {ids}", f"eos_token_id {index}")
    return ids


def _disagreement(where: Path, tokenizer: str, config: str) -> CheckpointError:
    return CheckpointError(
        f"{where} gives {tokenizer}, config.json says {config}; one of them belongs to another model"
    )


def unwritable_ids(
    tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int], mask_id: int, where: Path
) -> tuple[int, ...]:
    """Ids that must never be emitted: MASK, special tokens other than end-of-text, and embedding rows without a token.

    Raises `CheckpointError` where the tokenizer has an id beyond the embedding.
    """
    ids = frozenset(tokenizer.get_vocab(with_added_tokens=True).values())
    if not ids or max(ids) >= vocab_size:
        raise CheckpointError(
            f"{where} has ids up to {max(ids, default=-1)}, config.json says vocab_size {vocab_size}; one "
            "of them belongs to another model"
        )
    special = {index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    unused = set(range(vocab_size)) - ids
    return tuple(sorted((special | unused | {mask_id}) - set(end_ids)))
