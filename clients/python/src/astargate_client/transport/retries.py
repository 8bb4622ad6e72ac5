"""When a failed request is sent again, and how long after."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from astargate_client.transport.errors import AstargateError, ConnectionFailedError, StatusError, TimedOutError

REFUSED: Final = frozenset({429, 503})
"""The server has done nothing: any request may be sent again."""
LOST: Final = frozenset({408, 502, 504})
"""Something on the way lost the answer: only a request whose repetition does no harm may be sent again."""
FINAL_CODES: Final = frozenset({"deadline_exceeded"})
"""Answers of these codes stay the same."""


@dataclass(frozen=True, slots=True)
class Retries:
    """At most `limit` more attempts, after pauses that double from `first` to `longest` seconds, minus up to half.

    A `Retry-After` of the server replaces the pause (plus up to a tenth, so that not all come back at once); one of
    more than `patience` seconds ends the attempts.
    """

    limit: int = 2
    first: float = 0.5
    longest: float = 8.0
    patience: float = 60.0

    def pause(self, attempt: int, error: AstargateError, *, repeatable: bool) -> float | None:
        """Seconds until the next attempt after attempt number `attempt` (from 0) failed; None where it was the last.

        `repeatable` says that a second run of the request does no harm.
        """
        if attempt >= self.limit or not _worth_repeating(error, repeatable):
            return None
        asked = error.retry_after if isinstance(error, StatusError) else None
        if asked is not None:
            return None if asked > self.patience else asked * random.uniform(1.0, 1.1)
        return min(self.longest, self.first * 2.0**attempt) * random.uniform(0.5, 1.0)


def _worth_repeating(error: AstargateError, repeatable: bool) -> bool:
    if isinstance(error, TimedOutError):
        return not error.sent  # the time that the caller allowed is spent
    if isinstance(error, ConnectionFailedError):
        return repeatable or not error.sent
    if isinstance(error, StatusError) and error.code not in FINAL_CODES:
        return error.status in REFUSED or (repeatable and error.status in LOST)
    return False
