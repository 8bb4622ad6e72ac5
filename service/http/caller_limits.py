"""What one caller may ask for at a time and in a minute; a caller is an API key."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from service.http.errors import ApiError


@dataclass(slots=True)
class _Bucket:
    """Requests that a caller may send at once, as of `filled`."""

    tokens: float
    filled: float


class CallerLimits:
    """Counts by caller. Lives on the event loop; callers are the configured keys, so it stays small.

    The rate is a token bucket: `per_minute` requests at once after a quiet minute, refilled evenly.
    """

    def __init__(
        self, concurrency: int | None, per_minute: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.concurrency = concurrency
        self.per_minute = per_minute
        self.clock = clock
        self.running: Counter[str] = Counter()
        self._buckets: dict[str, _Bucket] = {}

    def enter(self, key_id: str) -> None:
        """Count a request that begins; `leave` must follow. Raises a 429 `ApiError`, and counts nothing."""
        if self.concurrency is not None and self.running[key_id] >= self.concurrency:
            message = f"this API key has {self.concurrency} requests running, the most that it may have at a time"
            raise ApiError(429, message, code="key_concurrency", headers={"Retry-After": "1"})
        if self.per_minute is not None:
            self._take(key_id, self.per_minute)
        self.running[key_id] += 1

    def leave(self, key_id: str) -> None:
        self.running[key_id] -= 1
        if not self.running[key_id]:
            del self.running[key_id]

    def _take(self, key_id: str, per_minute: int) -> None:
        now, rate = self.clock(), per_minute / 60
        bucket = self._buckets.setdefault(key_id, _Bucket(per_minute, now))
        bucket.tokens = min(per_minute, bucket.tokens + (now - bucket.filled) * rate)
        bucket.filled = now
        if bucket.tokens < 1:
            seconds = math.ceil((1 - bucket.tokens) / rate)
            message = f"this API key may send {per_minute} requests a minute; the next one in {seconds} s"
            raise ApiError(429, message, code="key_rate", headers={"Retry-After": str(seconds)})
        bucket.tokens -= 1
