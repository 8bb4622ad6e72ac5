"""`astargate bench --with-horizon`: latency of /generate on a server that it starts, with and without a horizon job.

Blocks with and without the job take turns over the rounds, so that a machine whose speed drifts spoils both alike.
"""

from __future__ import annotations

import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import httpx

from gate_models.offline.bench.settings import BenchSettings
from gate_models.offline.benchmarks.tasks import TaskPrompt, load_task
from gate_models.offline.runs import markdown
from gate_models.offline.runs.result_file import write_json

START_SECONDS: Final = 300.0
ROLLOUTS: Final = 4096
"""Far more than a block has time for: the job is cancelled when the block ends."""


@contextmanager
def _server(settings: BenchSettings, folder: Path) -> Iterator[httpx.Client]:
    """A server process that is ready, and a client of it. Raises `ValueError` with its log where it does not start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    log = folder / "log"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--no-access-log"]
    command += ["--model", settings.model, "--device", settings.device, "--dtype", settings.dtype]
    command += ["--threads", str(settings.threads), "--database", f"sqlite:///{folder / 'jobs.db'}"]
    command += ["--committor-max-rows", "1000000000", "--committor-inline-rows", "0", "--drain-seconds", "1"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            deadline = time.monotonic() + START_SECONDS
            while not _ready(client):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ValueError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.2)
            with failures_explained(log):
                yield client
    finally:
        process.terminate()
        process.wait()


@contextmanager
def failures_explained(log: Path) -> Iterator[None]:
    """Raises `ValueError` in place of an HTTP error: with the server's words, or with the end of its log."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        asked, reply = error.request, error.response
        raise ValueError(
            f"the server answered {asked.method} {asked.url.path} with {reply.status_code}: {reply.text[:2000]}"
        ) from None
    except httpx.TransportError as error:
        raise ValueError(f"the server broke off ({error!r}):\n{log.read_text(errors='replace')[-2000:]}") from None


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def _body(prompt: TaskPrompt, settings: BenchSettings) -> dict[str, Any]:
    return {
        "prompt": prompt.prompt,
        "constraint": prompt.constraint,
        "render_constraint": prompt.render_constraint,
        "gen_length": settings.gen_length,
        "steps": settings.gen_length,
        "seed": settings.seed,
    }


def _block(client: httpx.Client, bodies: list[dict[str, Any]], concurrency: int) -> list[float]:
    """Seconds of each request, `concurrency` at a time."""

    def timed(body: dict[str, Any]) -> float:
        began = time.perf_counter()
        client.post("/generate", json=body).raise_for_status()
        return time.perf_counter() - began

    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(timed, bodies))


@contextmanager
def _horizon_job(client: httpx.Client, body: dict[str, Any], progress: list[float]) -> Iterator[None]:
    """A horizon job runs in the background; its continuations a second are added to `progress`."""
    reply = client.post("/committor", json={**body, "horizon": True, "rollouts": ROLLOUTS})
    reply.raise_for_status()
    path = reply.headers["location"]
    while (before := client.get(path).json())["progress"]["rollouts"] == 0:
        if before["status"] not in {"queued", "running"}:
            raise ValueError(f"the horizon job ended with status {before['status']}: {before['error']}")
        time.sleep(0.1)
    began = time.perf_counter()
    try:
        yield
        after = client.get(path).json()
        done = after["progress"]["rollouts"] - before["progress"]["rollouts"]
        progress.append(done / (time.perf_counter() - began))
        if after["status"] != "running":
            raise ValueError(f"the horizon job was {after['status']} before the block ended; take fewer requests")
    finally:
        client.delete(path)


def run(settings: BenchSettings, out: Path | None = None) -> dict[str, Any]:
    """Measure, print a Markdown table, return (and write to `out`) the result."""
    bodies = [_body(prompt, settings) for prompt in load_task("commongen", settings.requests)]
    seconds: dict[tuple[int, bool], list[float]] = {}
    progress: list[float] = []
    with tempfile.TemporaryDirectory(prefix="astargate-bench-") as folder, _server(settings, Path(folder)) as client:
        model = client.get("/v1/models").json()["data"][0]
        _block(client, bodies[:4], 2)
        for _ in range(settings.repeats):
            for concurrency in settings.concurrency:
                seconds.setdefault((concurrency, False), []).extend(_block(client, bodies, concurrency))
                with _horizon_job(client, bodies[0], progress):
                    seconds.setdefault((concurrency, True), []).extend(_block(client, bodies, concurrency))
    cells = [
        {
            "concurrency": concurrency,
            "horizon_job": job,
            "p50_seconds": statistics.median(timed),
            "p99_seconds": statistics.quantiles(timed, n=100, method="inclusive")[98],
            "requests": len(timed),
        }
        for (concurrency, job), timed in seconds.items()
    ]
    result = {
        "settings": asdict(settings),
        "model_hash": model["hash"],
        "machine": platform.machine(),
        "rollouts_per_second": statistics.median(progress),
        "cells": cells,
    }
    print(table(result))
    if out is not None:
        write_json(out, result)
    return result


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    settings = result["settings"]
    rows = [
        (
            str(cell["concurrency"]),
            "running" if cell["horizon_job"] else "none",
            f"{1000 * cell['p50_seconds']:.0f}",
            f"{1000 * cell['p99_seconds']:.0f}",
        )
        for cell in result["cells"]
    ]
    head = (
        f"/generate, canvas and steps {settings['gen_length']}, {settings['threads']} thread(s), "
        f"{settings['repeats']} rounds of {settings['requests']} requests; the job ran "
        f"{result['rollouts_per_second']:.1f} continuations/s meanwhile (median of the blocks).\n\n"
    )
    return head + markdown.table(("clients", "horizon job", "p50 ms", "p99 ms"), rows)
