"""Today's behaviour stays as it was recorded: answers, ledgers, gates, repair, a census, the API's shape.

After a change of behaviour that is meant: `python -m tests.golden.record`, and read the diff of the golden files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import replay, requests
from tests.service.process import ServerProcess

RECORDED = replay.read(replay.GOLDEN)
MOST_LINES = 25


def same(recorded: Any, answered: Any) -> None:
    """Fail with a line for each difference."""
    lines = replay.differences(recorded, answered)
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    if lines:
        pytest.fail("behaviour is not as recorded:\n" + "\n".join(lines[:MOST_LINES] + more), pytrace=False)


def skip_elsewhere(here: dict[str, Any]) -> None:
    """Skip where bits may differ from those of the recording."""
    there = RECORDED["header"]
    other = [f"{name} {there[name]}, here {value}" for name, value in here.items() if there[name] != value]
    if other:
        pytest.skip(
            f"the golden file was recorded with {'; '.join(other)}: re-record it on this machine, at a commit whose "
            "behaviour is known (python -m tests.golden.record)"
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    skip_elsewhere(replay.machine())
    started = replay.mini_server(tmp_path_factory.mktemp("golden"))
    try:
        skip_elsewhere(replay.header(started))
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def answers(server: ServerProcess) -> dict[str, Any]:
    """Every answer of the shipped model, asked for all at once."""
    return replay.ask_mini(server)


@pytest.fixture(scope="module")
def reused(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of a checkpoint that can reuse keys and values."""
    return replay.ask_reuse(tmp_path_factory.mktemp("reuse"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*requests.FIRST, *requests.MINI])
def test_the_answer_is_as_recorded(name: str, answers: dict[str, Any]) -> None:
    same(RECORDED["answers"][name], answers[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", requests.REUSE)
def test_reuse_is_as_recorded(name: str, reused: dict[str, Any]) -> None:
    same(RECORDED["answers"][name], reused[name])


@pytest.mark.slow
def test_the_census_is_as_recorded(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    same(RECORDED["answers"]["census"], replay.small_census(tmp_path_factory.mktemp("census")))


def test_the_api_is_as_recorded() -> None:
    same(replay.read(replay.OPENAPI_GOLDEN), replay.stripped_openapi())


def test_every_request_is_recorded() -> None:
    assert RECORDED["answers"].keys() == {*requests.FIRST, *requests.MINI, *requests.REUSE, "census"}


def test_requests_cover_what_the_server_offers() -> None:
    """Presets, gate sources, orders, kinds of confidence, repair selectors and constraints, by the catalogue."""
    asked = requests.GENERATE.values()
    policies = [body.get("policy", {}) for body in asked]
    offered = RECORDED["answers"]["policies"]["answer"]
    assert _named(offered["data"], "preset") <= _values(policies, "preset")
    assert _named(offered["gate_sources"], "source") <= _values([p.get("gate", {}) for p in policies], "source")
    assert set(offered["orders"]) <= {"confidence"} | _values(policies, "order")
    assert set(offered["confidence_kinds"]) <= {"probability"} | _values(asked, "confidence")
    assert set(offered["tail_rules"]) <= {"top_k"} | _values(policies, "tail_rule")
    chosen = _values([p.get("repair", {}) for p in policies], "selector")
    assert set(offered["repair_selectors"]) <= {"constraint_aware"} | chosen
    types = _named(RECORDED["answers"]["constraints"]["answer"]["data"], "type")
    assert types <= _values([body.get("constraint", {}) for body in asked], "type")


def _named(entries: list[dict[str, Any]], field: str) -> set[str]:
    return {entry[field] for entry in entries}


def _values(entries: Any, field: str) -> set[str]:
    return {entry[field] for entry in entries if field in entry}
