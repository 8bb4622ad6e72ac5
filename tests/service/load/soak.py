"""A server under hostile clients; `python -m tests.service.load.soak --requests 10000` says what came of every request.

Fails unless the engine ends idle, no request got a 5xx or a malformed error, every committor job ended, and memory,
threads and file handles are where they were after the first part. `--output FILE` keeps the figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, get_args

import httpx
from tqdm import tqdm

from service.committor.worker import DATABASE_THREADS, INLINE
from service.http.connections import Refusal
from service.workers import THREADS
from tests.service.load.hostile import Hostile
from tests.service.process import ServerProcess, total, wait_until

WARM_UP = 0.2
"""Share of the requests after which memory is taken as settled."""
MORE_MEMORY = 150 << 20
MORE_FILES = 8
MORE_THREADS = sum(THREADS.values()) + INLINE + DATABASE_THREADS
"""Threads that the server's pools begin when they first need one, which may be after the first part."""
UNFINISHED: Final = Counter(queued=sys.maxsize, running=sys.maxsize)
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


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an attack."""

    requests: int
    workers: int
    seed: int
    seconds: float
    model_hash: str
    outcomes: dict[str, int]
    """Requests by what became of them."""
    before: Held
    """After `WARM_UP` of the requests."""
    after: Held
    rows: int
    """Rows that the engine ran for requests."""
    booked: int
    """Rows of answered, failed and departed requests."""
    jobs: dict[str, int]
    """Committor jobs by status."""
    connections_refused: dict[str, int]
    next_status: int
    """Of a plain request after it all."""

    @property
    def faults(self) -> list[str]:
        """What must not be after an attack."""
        bad = ("5", "malformed", "connection")
        faults = [f"{count} x {kind}" for kind, count in self.outcomes.items() if kind.startswith(bad)]
        if self.after.files > self.before.files + MORE_FILES:
            faults.append(f"{self.after.files} open files, {self.before.files} before")
        if self.after.memory > self.before.memory + MORE_MEMORY:
            faults.append(f"{self.after.memory >> 20} MiB, {self.before.memory >> 20} before")
        if self.after.threads > self.before.threads + MORE_THREADS:
            faults.append(f"{self.after.threads} threads, {self.before.threads} before")
        if self.rows != self.booked:
            faults.append(f"{self.rows} rows ran, {self.booked} are booked to requests")
        faults += [f"{count} jobs {status}" for status, count in self.jobs.items() if status != "succeeded"]
        if self.next_status != 200:
            faults.append(f"the next request got {self.next_status}")
        return faults


def soak(server: ServerProcess, requests: int, *, workers: int = 24, seed: int = 0) -> Report:
    """Attack `server`, whose first requests these are."""
    began, first = time.monotonic(), max(1, int(requests * WARM_UP))
    counts = asyncio.run(attack(server.url, first, workers, seed))
    server.wait_idle()
    before = Held.of(server.process.pid)
    counts += asyncio.run(attack(server.url, requests - first, workers, seed + 1))
    seconds = time.monotonic() - began
    jobs = wait_until(lambda: job_statuses(server), lambda seen: not seen & UNFINISHED, "the end of all jobs")
    metrics = server.wait_idle()
    for _ in range(100):  # the kernel and the garbage collector take their time
        after = Held.of(server.process.pid)
        if after.files <= before.files + MORE_FILES:
            break
        time.sleep(0.1)
    booked = total(metrics, "forward_rows_spent_total") + total(metrics, "forward_rows_abandoned_total")
    background = total(metrics, "forward_rows_total", purpose="rollout")
    plain = server.client.post("/generate", json={"prompt": "a", "gen_length": 4, "policy": {"preset": "base"}})
    return Report(
        requests=requests,
        workers=workers,
        seed=seed,
        seconds=round(seconds, 1),
        model_hash=server.client.get("/v1/models").json()["data"][0]["hash"],
        outcomes=dict(sorted(counts.items())),
        before=before,
        after=after,
        rows=int(total(metrics, "forward_rows_total") - background),
        booked=int(booked),
        jobs=dict(jobs),
        connections_refused={
            reason: int(count)
            for reason in get_args(Refusal)
            if (count := total(metrics, "connections_refused_total", reason=reason))
        },
        next_status=plain.status_code,
    )


def job_statuses(server: ServerProcess) -> Counter[str]:
    """Committor jobs of the database by status."""
    counts: Counter[str] = Counter()
    after: str | None = None
    while True:
        page = server.client.get("/committor", params={"limit": 100} | ({"after": after} if after else {})).json()
        counts.update(job["status"] for job in page["data"])
        if not page["has_more"]:
            return counts
        after = page["data"][-1]["id"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "log", *OPTIONS)
        try:
            report = soak(server.wait_for(200), arguments.requests, workers=arguments.workers, seed=arguments.seed)
        finally:
            code = server.stop()
        log = server.log.read_text(encoding="utf-8")
    text = json.dumps(asdict(report), indent=1)
    print(text)
    faults = report.faults
    if "Traceback" in log:
        faults.append("the log has a traceback:\n" + log[log.index("Traceback") :][:3000])
    if code != 0:
        faults.append(f"the server exited with {code}")
    print("\n".join(f"WRONG: {problem}" for problem in faults) or "0 x 5xx; everything came back")
    if arguments.output is not None and not faults:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
