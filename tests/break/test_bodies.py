"""Bodies that are nearly right: whatever a body says, its answer is a text or names the field at fault."""

from __future__ import annotations

import json

import pytest

from tests.service.process import ServerProcess, error_of

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball"]}
HUGE = 10**400
"""A number that no float holds."""
STATE = {"constraint": KEYWORDS, "gen_length": 12, "rollouts": 2}


def posted(server: ServerProcess, path: str, body: object) -> tuple[int, dict]:
    content = json.dumps(body) if not isinstance(body, bytes) else body
    reply = server.client.post(path, content=content, headers={"Content-Type": "application/json"})
    return reply.status_code, reply.json() if reply.status_code == 200 else error_of(reply)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        pytest.param(
            "/generate",
            {"constraint": KEYWORDS, "gen_length": 12, "steps": 5, "block_length": 6, "policy": {"preset": "auto"}},
            "block_length",
            id="blocks that do not divide the steps of preset auto",
        ),
        pytest.param(
            "/generate",
            {"constraint": KEYWORDS, "gen_length": 12, "block_length": 5, "policy": {"preset": "auto"}},
            "block_length",
            id="blocks that do not divide the canvas of preset auto",
        ),
        pytest.param(
            "/v1/completions",
            {"model": "mini", "prompt": "a", "max_tokens": 12, "steps": 5, "block_length": 6},
            "block_length",
            id="blocks of a completion",
        ),
        pytest.param(
            "/generate",
            {"constraint": KEYWORDS, "policy": {"preset": "reopen_repair", "repair": {"anchor": HUGE}}},
            "policy.repair.anchor",
            id="an anchor that no float holds",
        ),
        pytest.param(
            "/generate",
            {"constraint": KEYWORDS, "policy": {"preset": "reopen_repair", "repair": {"anchor": -HUGE}}},
            "policy.repair.anchor",
            id="a negative anchor that no float holds",
        ),
        pytest.param(
            "/v1/completions",
            {"model": "mini", "prompt": "a \ud800", "max_tokens": 8},
            "prompt",
            id="a lone surrogate in a prompt",
        ),
        pytest.param(
            "/v1/chat/completions",
            {
                "model": "mini",
                "max_tokens": 8,
                "messages": [{"role": "system", "content": "\udfff"}, {"role": "user", "content": "a"}],
            },
            "messages",
            id="a lone surrogate in an earlier turn",
        ),
        pytest.param(
            "/committor",
            {**STATE, "state": {"fraction": 0.3}, "policy": {"guided_width": 4}},
            "state.fraction",
            id="a state after the end of a wide guided run",
        ),
        pytest.param(
            "/committor",
            {**STATE, "state": {"fraction": 0.9}, "eos_fill": True, "policy": {"guided_width": 2}},
            "state.fraction",
            id="a state after the end of a run that end-of-text fills",
        ),
        pytest.param(
            "/generate",
            {"constraint": {"type": "length_ratio", "source": "\u2014 ..."}},
            "constraint.source",
            id="a source without a word",
        ),
    ],
)
def test_a_body_at_fault_is_told_where(server: ServerProcess, path: str, body: object, param: str) -> None:
    status, error = posted(server, path, body)
    assert (status, error["param"]) == (422, param), error


@pytest.mark.parametrize("depth", [300, 900, 30_000])
def test_deep_nesting_is_refused(server: ServerProcess, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    status, _ = posted(server, "/generate", b'{"prompt": "a", "constraint": ' + deep + b"}")
    assert status in (400, 422)


def test_a_boosted_run_that_ends_before_the_state_is_the_requests_fault(server: ServerProcess) -> None:
    """Tokens set the pace of boosted steps, so that only the run can tell: its end is no fault of the server's."""
    policy = {"order": "guidance_boost", "guided_width": 12, "boost_threshold": 0.0}
    status, answer = posted(server, "/committor", {**STATE, "state": {"fraction": 0.95}, "policy": policy})
    assert status == 200 or (status, answer["param"]) == (422, "state.fraction"), answer
