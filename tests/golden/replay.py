"""Sends what `requests` lists to servers of their own, and keeps of the answers what may never change."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import torch
from typer.testing import CliRunner

from service.cli import app
from tests.golden.requests import CENSUS, FIRST, MINI, REUSE, Call
from tests.service.process import ROOT, ServerProcess

HERE: Final = Path(__file__).parent
GOLDEN: Final = HERE / "golden.json"
OPENAPI_GOLDEN: Final = HERE / "openapi.json"
OPENAPI: Final = ROOT / "service" / "openapi.json"
VOLATILE: Final = frozenset({"id", "created", "started", "finished", "job", "measured", "model_hash"})
"""Fields that differ from run to run, and the model's hash, which the header has."""
HORIZON_ID: Final = re.compile(r"^hor-[0-9a-f]{32}$")
TEXTS: Final = frozenset({"description", "summary", "title"})
CONCURRENCY: Final = 16


def machine() -> dict[str, Any]:
    """What bit-equal results need of the machine; known without a model."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "vnni": torch.cpu._is_vnni_supported(),
    }


def header(server: ServerProcess) -> dict[str, Any]:
    """Machine, model and precision of the answers of a server."""
    (model,) = server.client.get("/v1/models").json()["data"]
    return {**machine(), "model": model["id"], "model_hash": model["hash"], "precision": model["precision"]}


def mini_server(folder: Path) -> ServerProcess:
    """The shipped model in batch-invariant mode, with a database of its own and without shadow audits."""
    started = ServerProcess(
        folder / "mini.log", "--batch-invariant", *("--audit-share", "0"), *("--audit-share-uncertified", "0")
    )
    return started.wait_for(200)


def ask_mini(server: ServerProcess, *, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    """The kept answers by name, `concurrency` requests at a time; those of `FIRST` before the rest."""
    answers = {name: _ask(server, call) for name, call in FIRST.items()}
    with ThreadPoolExecutor(concurrency) as pool:
        pending = {name: pool.submit(_ask, server, call) for name, call in MINI.items()}
        return answers | {name: answer.result() for name, answer in pending.items()}


def ask_reuse(folder: Path) -> dict[str, Any]:
    """The kept answers of a small random checkpoint, made anew from its seed, to requests one by one."""
    _astargate("random-model", "--arch", "llada", "--out", str(folder / "llada"))
    server = ServerProcess(folder / "llada.log", "--model", str(folder / "llada"))
    try:
        server.wait_for(200)
        return {name: _ask(server, call) for name, call in REUSE.items()}
    finally:
        server.stop()


def small_census(folder: Path) -> dict[str, Any]:
    """Cost, fates and digest of a census of two prompts."""
    out = str(folder / "census")
    printed = _astargate("census", *CENSUS, "--out", out)
    report = json.loads(_astargate("census-report", out, "--json", "--digest"))
    cost = re.search(r"(\d+) prompts, (\d+) forward evaluations", printed)
    return {"cost": cost and cost.group(), "digest": report["digest"], "report": kept(report["subtasks"])}


def everything(folder: Path, *, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    """The whole golden file, measured now."""
    server = mini_server(folder)
    try:
        about, answers = header(server), ask_mini(server, concurrency=concurrency)
    finally:
        server.stop()
    return {"header": about, "answers": answers | ask_reuse(folder) | {"census": small_census(folder)}}


def stripped_openapi() -> Any:
    """The committed API document without its prose."""
    return _without_prose(read(OPENAPI))


def read(path: Path) -> Any:
    """What a golden file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def written(content: Any) -> str:
    """The form of both golden files."""
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def kept(answer: Any) -> Any:
    """An answer without what differs from run to run; a trace is its tokens and a digest of every step."""
    if isinstance(answer, list):
        return [kept(item) for item in answer]
    if isinstance(answer, str):
        return HORIZON_ID.sub("hor-*", answer)
    if not isinstance(answer, dict):
        return answer
    remaining = {name: kept(value) for name, value in answer.items() if name not in VOLATILE}
    if isinstance(remaining.get("trace"), dict):
        remaining["trace"] = {
            "digest": _digest(remaining["trace"]),
            "phases": [step["phase"] for step in remaining["trace"]["steps"]],
            "tokens": remaining["trace"]["tokens"],
        }
    return remaining


def differences(recorded: Any, answered: Any, place: str = "") -> list[str]:
    """One line for each place where two values differ."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        lines = []
        for name in sorted(recorded.keys() | answered.keys()):
            inner = f"{place}.{name}".lstrip(".")
            if name not in answered:
                lines.append(f"{inner}: recorded {_shown(recorded[name])}, now missing")
            elif name not in recorded:
                lines.append(f"{inner}: not recorded, now {_shown(answered[name])}")
            else:
                lines += differences(recorded[name], answered[name], inner)
        return lines
    if isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        pairs = enumerate(zip(recorded, answered, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{place}[{index}]")]
    if type(recorded) is type(answered) and recorded == answered:
        return []
    return [f"{place}: recorded {_shown(recorded)}, now {_shown(answered)}"]


def _shown(value: Any, limit: int = 300) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _ask(server: ServerProcess, call: Call) -> dict[str, Any]:
    """Status and kept body of an answer."""
    reply = server.client.request("GET" if call.body is None else "POST", call.path, json=call.body)
    if reply.headers["content-type"].startswith("text/event-stream"):
        return {"status": reply.status_code, **_events(reply)}
    answer = kept(_without_prose(reply.json()) if call.body is None else reply.json())
    if call.brief:
        answer["data"] = [_brief(entry) for entry in answer["data"]]
    return {"status": reply.status_code, "answer": answer}


def _brief(entry: dict[str, Any]) -> str:
    plain = [f"{name} {value}" for name, value in sorted(entry.items()) if isinstance(value, str | float | int)]
    return ", ".join([*plain, f"digest {_digest(entry)[:16]}"])


def _events(reply: httpx.Response) -> dict[str, Any]:
    """Names of a stream's events, a digest of all that they say, and the last one."""
    blocks = [block.split("\n", 1) for block in reply.text.split("\n\n") if block and not block.startswith(":")]
    events = [(head.removeprefix("event: "), kept(json.loads(data.removeprefix("data: ")))) for head, data in blocks]
    return {"events": [name for name, _ in events], "digest": _digest(events), "answer": events[-1][1]}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_prose(content: Any, *, names: bool = False) -> Any:
    """A document without descriptions, summaries and titles; `names`: the keys are names, not keywords."""
    if isinstance(content, list):
        return [_without_prose(item) for item in content]
    if not isinstance(content, Mapping):
        return content
    return {
        name: _without_prose(value, names=not names and name in {"properties", "schemas"})
        for name, value in content.items()
        if names or name not in TEXTS or not isinstance(value, str)
    }


def _astargate(*arguments: str) -> str:
    """What a command prints, which is run in this process. Raises `RuntimeError` with its words where it fails."""
    done = CliRunner().invoke(app, arguments)
    if done.exit_code:
        raise RuntimeError(f"astargate {' '.join(arguments)} failed:\n{done.output}") from done.exception
    return done.stdout
