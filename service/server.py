"""uvicorn, with a shutdown that lets running requests finish while readiness already says no."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from types import FrameType

import uvicorn
from prometheus_client import disable_created_metrics

from service.app import build_app
from service.config.settings import Settings
from service.http import logs
from service.lifecycle import Service, Status

LAST_BYTES_SECONDS = 5
"""How long connections may take to send what is ready, once decoding has ended."""


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains and then exits with 0; a second one exits at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._signals = 0
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._signals and self._draining is None:
            self._draining = asyncio.create_task(self.service.drain(self.service.settings.drain_seconds))
        if self._draining is not None and self._draining.done():
            self.should_exit = True
        if self.service.status is Status.FAILED:
            self.should_exit = True
        return await super().on_tick(counter)


def serve(settings: Settings) -> int:
    """Serve until a signal; the exit code of the process."""
    logs.configure(settings)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,  # the middleware's own line knows the request's id and key
        timeout_graceful_shutdown=LAST_BYTES_SECONDS,
        server_header=False,
    )
    server = DrainingServer(config, app.state.service)
    server.run()
    code = 1 if server.service.status is Status.FAILED else 0
    if any(thread.daemon and thread.name.startswith("astargate-") for thread in threading.enumerate()):
        # The model still loads or, after a second signal, decodes: the end of the interpreter under a thread that is
        # inside torch aborts the process.
        atexit._run_exitfuncs()
        os._exit(code)
    return code
