"""Plans that ask again until something has come about."""

from __future__ import annotations

import time

from astargate_client import calls, errors
from astargate_client.transport.exchange import Plan, Wait, exchange
from astargate_client.transport.retries import Retries
from astargate_client.wire import Health

READY_INTERVAL = 0.5
ONCE = Retries(limit=0)


def until_ready(timeout: float) -> Plan[Health]:
    """Ask for readiness until it is there."""
    end = time.monotonic() + timeout
    while True:
        try:
            return (yield from exchange(calls.ready(), ONCE))
        except (errors.ConnectionFailedError, errors.UnavailableError):
            if time.monotonic() >= end:
                raise
        yield Wait(READY_INTERVAL)
