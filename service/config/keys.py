"""API keys: how they are written down, hashed and recognised. Nothing here loads torch.

A key is a random secret of 256 bits, so a plain SHA-256 of it is safe to keep: there is no dictionary to try.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

Scope = Literal["use", "metrics", "admin"]
"""`use`: the API; `metrics`: /metrics where it is protected; `admin`: everything, operator settings included."""

SCOPES: Final = get_args(Scope)
ANONYMOUS: Final = "anonymous"
"""Key id of every caller of a server without keys."""
SHORTEST: Final = 16
"""Characters of a secret that was made elsewhere."""
_PREFIX: Final = "agk_"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_FORM: Final = "NAME:SECRET[:SCOPE+SCOPE] or NAME:sha256:HEX[:SCOPE+SCOPE] (`astargate key new` makes one)"


class KeyFormatError(ValueError):
    """A key that is written down wrongly; the message never holds its secret."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: the id of its key, and what that key may do."""

    key_id: str
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of a server as (SHA-256, caller); without any, everybody is `anonymous` and nobody is admin."""

    entries: tuple[tuple[bytes, Caller], ...] = ()

    def find(self, secret: str) -> Caller | None:
        """The caller whose key is `secret`; as long for a wrong key as for a right one."""
        digest, match = _digest(secret), None
        for known, caller in self.entries:
            if hmac.compare_digest(known, digest):
                match = caller
        return match

    @property
    def anonymous(self) -> Caller | None:
        """The caller without a key, where the server has none."""
        return None if self.entries else Caller(ANONYMOUS, frozenset({"use", "metrics"}))


def new_secret() -> str:
    """A fresh key."""
    return _PREFIX + secrets.token_urlsafe(32)


def hashed(name: str, secret: str, scopes: Iterable[str] = ()) -> str:
    """The entry to keep for a key: it recognises `secret` and does not tell it."""
    listed = "+".join(scopes)
    return f"{name}:sha256:{_digest(secret).hex()}" + (f":{listed}" if listed else "")


def parse_keys(text: str) -> Keyring:
    """The keys of `text`: entries apart by commas, spaces or lines; `#` begins a comment. Raises `KeyFormatError`."""
    entries = [entry for line in text.splitlines() for entry in re.split(r"[,\s]+", line.partition("#")[0]) if entry]
    keys = [_entry(number, entry) for number, entry in enumerate(entries, start=1)]
    for kind, values in (("name", [caller.key_id for _, caller in keys]), ("key", [digest for digest, _ in keys])):
        if len(set(values)) < len(values):
            raise KeyFormatError(f"two API keys have the same {kind}")
    return Keyring(tuple(keys))


def _entry(number: int, entry: str) -> tuple[bytes, Caller]:
    where = f"API key {number}"
    name, *rest = entry.split(":")
    if not _ID.fullmatch(name) or not rest:
        raise KeyFormatError(f"{where} is not of the form {_FORM}")
    where = f"API key '{name}'"
    if name == ANONYMOUS:
        raise KeyFormatError(f"{where} needs another name: that one is for callers without a key")
    if rest[0] == "sha256":
        if len(rest) < 2 or not _DIGEST.fullmatch(rest[1].lower()):
            raise KeyFormatError(f"{where}: after sha256: come 64 hexadecimal digits")
        digest, scopes = bytes.fromhex(rest[1]), rest[2:]
    else:
        if not _SECRET.fullmatch(rest[0]) or len(rest[0]) < SHORTEST:
            raise KeyFormatError(f"{where} must have at least {SHORTEST} characters from A-Z a-z 0-9 . _ ~ + / = -")
        digest, scopes = _digest(rest[0]), rest[1:]
    if len(scopes) > 1:
        raise KeyFormatError(f"{where} is not of the form {_FORM}")
    return digest, Caller(name, _scopes(where, scopes[0].split("+") if scopes else ["use"]))


def _scopes(where: str, names: list[str]) -> frozenset[str]:
    for name in names:
        if name not in SCOPES:
            raise KeyFormatError(f"{where} has an unknown scope; there are {', '.join(SCOPES)}")
    return frozenset(names)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
