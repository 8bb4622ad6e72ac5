"""Constraints that are dear to read: they cost little, are refused with a reason, and hold nobody else up."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

import httpx
import pytest

from decoding.constraints.base import fields
from tests.service.process import ServerProcess, error_of

SMALL = {"prompt": "a dog", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
CPU_SECONDS = 15.0
"""Far less than what these constraints took when each phrase was looked for by itself (28 s on an idle machine)."""


def headless(count: int) -> dict[str, object]:
    """An avoid constraint of phrases that begin with no word; each has to be looked for everywhere."""
    forbidden, topical = ([f"{mark}x{index}" for index in range(count)] for mark in "+=")
    return {"type": "avoid", "topic": "t", "forbidden": forbidden, "topical": topical}


def leave_after(process: ServerProcess, body: dict[str, object], seconds: float) -> None:
    """Send a request, and leave before its answer."""
    content = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", process.port)) as connection:
        head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        connection.sendall(f"{head}\r\n\r\n".encode() + content)
        time.sleep(seconds)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thousands_of_phrases_hold_nobody_up(spawn):
    process: ServerProcess = spawn().wait_for(200)
    dear = {**SMALL, "constraint": headless(fields.MAX_LEXICON)}
    leaving = [threading.Thread(target=leave_after, args=(process, dear, 1.0)) for _ in range(4)]
    for thread in leaving:
        thread.start()
    began = process.cpu_seconds()
    for _ in range(3):
        assert httpx.post(f"{process.url}/generate", json=SMALL, timeout=600).status_code == 200
    assert process.cpu_seconds() - began < CPU_SECONDS
    for thread in leaving:
        thread.join()
    began = process.cpu_seconds()
    reply = httpx.post(f"{process.url}/generate", json={**dear, "deadline_s": 5}, timeout=600)
    assert reply.status_code in (200, 504), reply.text
    assert process.cpu_seconds() - began < CPU_SECONDS
    process.wait_idle()


def test_the_text_of_a_constraint_is_bounded(server):
    words = [f"{index:04d}" + "x" * 60 for index in range(4000)]
    reply = server.client.post("/generate", json={"constraint": {"type": "avoid", "topic": "t", "forbidden": words}})
    assert reply.status_code == 422
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("constraint", "invalid_constraint")
    assert f"at most {fields.MAX_CHARACTERS}" in error["message"]
