"""uvicorn with bounded connections, and a shutdown that lets requests finish while readiness already says no.

Over h11 and asyncio's own loop: docs/server.md says why.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import socket
import threading
from types import FrameType

import uvicorn
from prometheus_client import disable_created_metrics

from service.app import build_app
from service.config.settings import Settings
from service.http import logs
from service.http.connections import ACCEPTED_AT_ONCE, ConnectionLimits, Connections
from service.lifecycle import Service, Status

logger = logging.getLogger(__name__)

LAST_BYTES_SECONDS = 5
"""How long connections may take to send what is ready, once decoding has ended."""
BACKLOG = 2048
"""Connections that the system holds until the event loop takes them."""
OPEN = "anybody who reaches %s may use this server: it has no API keys (ASTARGATE_API_KEYS, --api-keys-file)"


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains and then exits with 0, a second one ends the drain, a third exits at once.

    SIGHUP reads the file of API keys anew.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._signals = 0
        self._reload = self._hurried = self._announced = False
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 2:
            self.should_exit = self.force_exit = True

    def handle_reload(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler: `on_tick` does the work."""
        self._reload = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # uvicorn has one number for what the system holds and what the loop takes in one round; the second must stay
        # small, or a burst has the last file descriptors before any of it can be closed.
        for server in self.servers:
            for listening in server.sockets:
                with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                    same.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        if self._reload:
            self._reload = False
            self.service.reload_keys()
        if self._signals and self._draining is None:
            self._draining = asyncio.create_task(self.service.drain(self.service.settings.drain_seconds))
        if self._signals > 1 and not self._hurried:
            self._hurried = True
            self.service.hurry()
        if self._draining is not None and self._draining.done():
            self.should_exit = True
        if not self._announced and self.service.status is Status.READY:
            self._announced = True
            self._announce()
        self.service.check_engine()
        if self.service.status is Status.FAILED:
            self.should_exit = True
        return await super().on_tick(counter)

    def _announce(self) -> None:
        """Three lines for the person who started it; the port is the one that the system gave."""
        port = self.servers[0].sockets[0].getsockname()[1]
        url = root_url(self.service.settings.host, port)
        logger.info("playground: %s", url)
        logger.info("API: %sdocs", url)
        logger.info("database: %s", self.service.jobs.database.place)


def root_url(host: str, port: int) -> str:
    """Where a browser on this machine finds the server; an address that stands for all of them is none to open."""
    bare = host.strip("[]")
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bare, f"[{bare}]" if ":" in bare else bare)
    return f"http://{name}:{port}/"


def serve(settings: Settings) -> int:
    """Serve until a signal; the exit code of the process."""
    logs.configure(settings)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    if settings.is_open_to_all:
        logger.warning(OPEN, settings.host)
    app = build_app(settings)
    service: Service = app.state.service
    connections = Connections(ConnectionLimits.of(settings), service.metrics.connection_refused)
    service.metrics.watch_connections(connections)
    config = uvicorn.Config(
        app,
        http=connections.protocol,  # type: ignore[arg-type]  # called as the class is
        ws="none",
        loop="asyncio",  # uvloop closes connections that it has no file descriptor for, and says nothing
        backlog=ACCEPTED_AT_ONCE,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,  # the middleware's own line knows the request's id and key
        timeout_graceful_shutdown=LAST_BYTES_SECONDS,
        server_header=False,
    )
    server = DrainingServer(config, service)
    signal.signal(signal.SIGHUP, server.handle_reload)
    server.run()
    code = 1 if server.service.status is Status.FAILED else 0
    if any(thread.daemon and thread.name.startswith("astargate-") for thread in threading.enumerate()):
        # The model still loads or, after a second signal, decodes: the end of the interpreter under a thread that is
        # inside torch aborts the process.
        atexit._run_exitfuncs()
        os._exit(code)
    return code
