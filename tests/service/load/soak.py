"""A server under hostile clients; `python -m tests.service.load.soak --requests 10000` says what came of every request.

Fails unless the engine ends idle, no request got a 5xx or a malformed error, and memory, threads and file handles
are where they were after the first part.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx
from tqdm import tqdm

from service.committor.worker import DATABASE_THREADS, INLINE
from service.workers import THREADS
from tests.service.load.hostile import Hostile
from tests.service.process import ServerProcess, total

WARM_UP = 0.2
"""Share of the requests after which memory is taken as settled."""
MORE_MEMORY = 150 << 20
MORE_FILES = 8
MORE_THREADS = sum(THREADS.values()) + INLINE + DATABASE_THREADS
"""Threads that the server's pools begin when they first need one, which may be after the first part."""
OPTIONS = ("--max-queued-rows", "20000", "--keep-alive-seconds", "0.2", "--log-level", "warning")


@dataclass(frozen=True, slots=True)
class Held:
    """What the server's process holds."""

    memory: int
    files: int
    threads: int

    @staticmethod
    def of(process: int) -> Held:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
        )
        files = len(os.listdir(f"/proc/{process}/fd"))
        return Held(int(status["VmRSS"].split()[0]) << 10, files, int(status["Threads"]))


async def attack(url: str, requests: int, workers: int, seed: int) -> Counter[str]:
    """Send `requests` hostile requests, `workers` at a time; outcomes counted."""
    counts: Counter[str] = Counter()
    left = iter(tqdm(range(requests), desc="hostile requests", mininterval=5, disable=None))
    limits = httpx.Limits(max_connections=workers, max_keepalive_connections=4)

    async def work(number: int) -> None:
        hostile = Hostile(url, client, seed * 1000 + number)
        for _ in left:
            try:
                counts[await hostile.one()] += 1
            except (httpx.TransportError, OSError) as error:
                counts[f"connection: {type(error).__name__}"] += 1

    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        await asyncio.gather(*(work(number) for number in range(workers)))
    return counts


def soak(server: ServerProcess, requests: int, *, workers: int = 24, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Outcomes by kind, and what is wrong."""
    first = max(1, int(requests * WARM_UP))
    counts = asyncio.run(attack(server.url, first, workers, seed))
    server.wait_idle()
    before = Held.of(server.process.pid)
    counts += asyncio.run(attack(server.url, requests - first, workers, seed + 1))
    return counts, wrong(server, counts, before)


def wrong(server: ServerProcess, counts: Counter[str], before: Held) -> list[str]:
    """What must not be after an attack."""
    faults = [
        f"{count} x {kind}" for kind, count in counts.items() if kind.startswith(("5", "malformed", "connection"))
    ]
    metrics = server.wait_idle()
    for _ in range(100):  # the kernel and the garbage collector take their time
        after = Held.of(server.process.pid)
        if after.files <= before.files + MORE_FILES:
            break
        time.sleep(0.1)
    if after.files > before.files + MORE_FILES:
        faults.append(f"{after.files} open files, {before.files} before")
    if after.memory > before.memory + MORE_MEMORY:
        faults.append(f"{after.memory >> 20} MiB, {before.memory >> 20} before")
    if after.threads > before.threads + MORE_THREADS:
        faults.append(f"{after.threads} threads, {before.threads} before")
    rows, booked = (
        total(metrics, "forward_rows_total"),
        total(metrics, "forward_rows_spent_total") + total(metrics, "forward_rows_abandoned_total"),
    )
    if rows != booked:
        faults.append(f"{rows:.0f} rows ran, {booked:.0f} are booked to requests")
    answer = server.client.post("/generate", json={"prompt": "a", "gen_length": 4, "policy": {"preset": "base"}})
    if answer.status_code != 200:
        faults.append(f"the next request got {answer.status_code}")
    print(f"memory {before.memory >> 20} -> {after.memory >> 20} MiB, files {before.files} -> {after.files}, "
          f"threads {before.threads} -> {after.threads}, rows {rows:.0f}")  # fmt: skip
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "log", *OPTIONS)
        try:
            server.wait_for(200)
            began = time.monotonic()
            counts, faults = soak(server, arguments.requests, workers=arguments.workers, seed=arguments.seed)
            for kind, count in sorted(counts.items()):
                print(f"{count:7} {kind}")
            print(f"{counts.total()} requests in {time.monotonic() - began:.0f} s; the engine is idle")
        finally:
            code = server.stop()
        log = server.log.read_text(encoding="utf-8")
    if "Traceback" in log:
        faults.append("the log has a traceback:\n" + log[log.index("Traceback") :][:3000])
    if code != 0:
        faults.append(f"the server exited with {code}")
    print("\n".join(f"WRONG: {problem}" for problem in faults) or "0 x 5xx; everything came back")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
