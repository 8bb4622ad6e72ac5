"""Clients that behave badly: each sends one request and says what came of it."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import httpx

from decoding.constraints import catalogue

EXAMPLES = [entry["example"] for entry in catalogue()]
ODD = (None, True, -1, 0, 3.5, 1e308, 2**70, "", "x" * 300, [], {}, [[]], {"a": {}}, "\x00", "🙂")
GARBLED = (
    b"nonsense\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
)
FAILURE = re.compile(r'\ndata: \{"error": ?\{.*?"code": ?"(\w+)"')
STREAMED = {"deadline_exceeded": "past its own deadline, in a stream"}
"""Ends of streams that are no fault of the server."""
PATHS = ("/generate", "/v1/completions", "/v1/chat/completions", "/committor")


def policy(rng: random.Random) -> dict[str, Any]:
    gates = ({"source": "fraction", "fraction": round(rng.random(), 2)}, {"source": "drained"}, {"source": "never"})
    return rng.choice(
        (
            {"preset": "base"},
            {"preset": "base", "tail_width": rng.randint(1, 4)},
            {"preset": "full_cfg", "guided_width": rng.randint(1, 4)},
            {"preset": "handoff", "gate": rng.choice(gates)},
            {"preset": "parallel_tail", "gate": gates[0], "tail_width": rng.randint(2, 6)},
            {"preset": "parallel_tail", "gate": gates[0], "tail_width": 4, "tail_reuse": "prefix"},
        )
    )


def generate_body(rng: random.Random, **fields: Any) -> dict[str, Any]:
    """A small valid request."""
    body = {"prompt": "a dog", "policy": policy(rng), "gen_length": 8, "steps": rng.choice((2, 4, 8)), "n": 1}
    if rng.random() < 0.3:
        body |= {"constraint": {"type": "keywords", "keywords": ["dog"]}, "n": rng.randint(1, 3)}
    return body | {"stream": rng.random() < 0.4} | fields


def any_body(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A small valid request of any shape."""
    path = rng.choice(PATHS[:3])
    if path == "/generate":
        return path, generate_body(rng)
    shared = {"model": "mini", "max_tokens": 8, "stream": rng.random() < 0.5, "policy": policy(rng)}
    if path == "/v1/completions":
        return path, shared | {"prompt": "a dog"}
    return path, shared | {"messages": [{"role": "user", "content": "a dog"}]}


def broken(rng: random.Random) -> tuple[str, bytes]:
    """A body that is nearly right, or nothing like it."""
    path, body = any_body(rng)
    if rng.random() < 0.3:
        body |= {"constraint": dict(rng.choice(EXAMPLES)), "gen_length": rng.choice((1, 2, 8))}
    for _ in range(rng.randint(1, 3)):
        target = rng.choice([body, *(value for value in body.values() if isinstance(value, dict))])
        target[rng.choice([*target, "extra"])] = deepcopy(rng.choice(ODD))
    if "deadline_s" not in body:
        body["steps"] = body.get("steps") if rng.random() < 0.5 else 4
    content = json.dumps(body).encode()
    return path, content if rng.random() < 0.8 else content[: rng.randint(0, len(content))]


class Hostile:
    """All the ways; `counts` gets one outcome a request."""

    def __init__(self, url: str, client: httpx.AsyncClient, seed: int) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.client = client
        self.rng = random.Random(seed)
        self.ways: tuple[tuple[Callable[[], Awaitable[str]], float], ...] = (
            (self.polite, 4),
            (self.wrong, 4),
            (self.gone, 4),
            (self.cut_off, 2),
            (self.slow, 0.5),
            (self.late, 1),
            (self.lost, 1),
            (self.endless, 0.5),
            (self.garbled, 1),
            (self.measured, 0.3),
        )

    async def one(self) -> str:
        ways, weights = zip(*self.ways, strict=True)
        return await self.rng.choices(ways, weights)[0]()

    async def _post(self, path: str, content: bytes) -> str:
        reply = await self.client.post(path, content=content, headers={"Content-Type": "application/json"})
        if reply.status_code == 200:
            failure = FAILURE.search(reply.text)
            if failure is None:
                return "200 ok"
            return STREAMED.get(failure[1], f"500 in a stream: {failure[1]}")
        body = reply.json()
        if set(body) != {"error"} or not reply.headers.get("x-request-id"):
            return f"malformed {reply.status_code}"
        if reply.status_code == 504 and b"deadline_s" in content:
            return "past its own deadline"  # which counts from arrival, so it may pass before a stream begins
        return str(reply.status_code)

    async def polite(self) -> str:
        path, body = any_body(self.rng)
        return await self._post(path, json.dumps(body).encode())

    async def wrong(self) -> str:
        path, content = broken(self.rng)
        return await self._post(path, content)

    async def late(self) -> str:
        """Asks for more than its deadline allows, as a stream: the error is an event, or a 504 before the first one."""
        body = generate_body(self.rng, steps=4096, gen_length=64, stream=True, deadline_s=0.05, n=1)
        body["policy"] = {"preset": "base"}
        return await self._post("/generate", json.dumps(body).encode())

    async def lost(self) -> str:
        reply = await self.client.request(
            self.rng.choice(("GET", "PUT", "DELETE", "PATCH")),
            self.rng.choice(("/generate", "/nowhere", "/committor/none", "/v1/models/none", "/v1/gates", "/%00", "/")),
        )
        return str(reply.status_code)

    async def _raw(self, body: dict[str, Any], path: str = "/generate") -> tuple[asyncio.StreamWriter, Any, bytes]:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        return writer, reader, head.encode() + b"\r\n\r\n" + content

    async def gone(self) -> str:
        """Sends a request and leaves before the answer."""
        path, body = any_body(self.rng)
        writer, _, message = await self._raw(body, path)
        writer.write(message)
        await writer.drain()
        await asyncio.sleep(self.rng.random() * 0.05)
        writer.transport.abort()
        return "left"

    async def cut_off(self) -> str:
        """Leaves in the middle of its request."""
        writer, _, message = await self._raw(generate_body(self.rng))
        writer.write(message[: self.rng.randint(1, len(message) - 1)])
        await writer.drain()
        writer.transport.abort()
        return "cut off"

    async def slow(self) -> str:
        """Opens a stream, reads a little of it, waits, leaves."""
        body = generate_body(self.rng, stream=True, gen_length=64, steps=64, n=2, policy={"preset": "base"})
        writer, reader, message = await self._raw(body)
        writer.write(message)
        await reader.read(10)
        await asyncio.sleep(0.5)
        writer.transport.abort()
        return "read slowly"

    async def endless(self) -> str:
        """Asks for very much and leaves at once; a flood of these fills the queue."""
        body = generate_body(self.rng, gen_length=64, steps=4096, n=4, policy={"preset": "full_cfg"}, stream=True)
        writer, reader, message = await self._raw(body)
        writer.write(message)
        status = (await reader.read(12)).decode()
        await asyncio.sleep(self.rng.random() * 0.1)
        writer.transport.abort()
        return "left" if status.endswith("200") else status[-3:]

    async def garbled(self) -> str:
        """Sends what is no HTTP, too much of it, or a body whose end is unclear."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self.rng.choice(GARBLED))
        answer = await reader.read()
        writer.transport.abort()
        status = answer[9:12].decode()
        return f"refused {status}" if status in {"400", "431"} else f"malformed {status}"

    async def measured(self) -> str:
        """Asks for a committor and does not wait for it."""
        body = {"constraint": {"type": "keywords", "keywords": ["dog"]}, "state": {"fraction": 0.5}, "gen_length": 8}
        reply = await self.client.post("/committor", json=body | {"rollouts": 2, "seed": self.rng.randrange(1 << 30)})
        return "job" if reply.status_code in {200, 202} else str(reply.status_code)
