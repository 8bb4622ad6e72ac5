"""No body whatever makes the server fail: it is answered or refused in the one shape."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoding.constraints import catalogue
from decoding.policy.decoding_policy import PRESETS, REUSE_MODES
from decoding.policy.repair import SELECTORS
from decoding.sampling.commit_order import order_names
from service.schemas.generate import GenerateRequest
from service.schemas.policy import GateRequest, PolicyRequest, RepairRequest
from tests.service.load import valid
from tests.service.process import error_of

MOST = 4
"""Valid requests that are served for each that is refused, at least."""

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([0, 1, -1, 0.5, 1e308, 2**63, "base", "fraction", "", "\x00", "dog"])
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EXAMPLES = [entry["example"] for entry in catalogue()]


def fields_of(model, **better):
    """Objects with some of a request model's fields, each sensible or anything."""
    return st.fixed_dictionaries(
        {}, optional={name: better.get(name, JSON) | JSON if name in better else JSON for name in model.model_fields}
    )


@st.composite
def constraints(draw):
    spec = dict(draw(st.sampled_from(EXAMPLES)))
    for name in draw(st.lists(st.sampled_from([*spec, "extra"]), max_size=2)):
        spec[name] = draw(JSON)
    return spec


GATES = fields_of(
    GateRequest,
    source=st.sampled_from(["fraction", "never", "drained", "constant", "policy", "value"]),
    fraction=st.floats(0, 1),
)
REPAIRS = fields_of(
    RepairRequest,
    selector=st.sampled_from(SELECTORS),
    reopen=st.integers(1, 4),
    max_rounds=st.integers(0, 2),
    anchor=st.sampled_from(["end", "peak"]) | st.floats(0, 1),
    rollouts=st.integers(1, 3),
)
POLICIES = fields_of(
    PolicyRequest,
    preset=st.sampled_from(PRESETS),
    gate=GATES,
    guidance_scale=st.floats(0, 20),
    order=st.sampled_from(order_names()),
    boost_threshold=st.floats(0, 1),
    tail_width=st.integers(1, 8),
    tail_threshold=st.floats(0, 1),
    tail_reuse=st.sampled_from(REUSE_MODES),
    tail_refresh=st.integers(1, 9),
    guided_width=st.integers(1, 8),
    on_fallback=st.sampled_from(["drained", "full_cfg", "base", "reject"]),
    repair=REPAIRS,
    budget_rows=st.integers(1, 100),
)
TAILS = st.fixed_dictionaries(
    {"preset": st.just("parallel_tail"), "gate": st.just({"source": "fraction", "fraction": 0.3})},
    optional={
        "tail_width": st.integers(1, 6),
        "tail_threshold": st.floats(0, 1),
        "tail_reuse": st.sampled_from(REUSE_MODES),
        "tail_refresh": st.integers(1, 9),
        "guided_width": st.integers(1, 3),
    },
)
WRONG = fields_of(GenerateRequest, constraint=constraints(), policy=POLICIES)
SMALL = {"gen_length": 6, "steps": 3, "n": 1}
RIGHT = st.fixed_dictionaries(
    {"prompt": st.text(max_size=30), **{name: st.just(value) for name, value in SMALL.items()}},
    optional={
        "constraint": constraints(),
        "policy": POLICIES,
        "temperature": st.floats(0, 5),
        "top_p": st.floats(0.01, 1),
        "confidence": st.sampled_from(["probability", "margin", "neg_entropy"]),
        "seed": st.integers(0, 2**53 - 1),
        "eos_fill": st.booleans(),
        "suppress_eos": st.booleans(),
        "trace": st.booleans(),
        "stream": st.booleans(),
    },
)


def check(server, body):
    # A fuzzer that hits on a valid request must not decode for minutes.
    if isinstance(body, dict):
        body = {**body, "deadline_s": 20} if "deadline_s" not in body else body
    reply = server.client.post("/generate", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert reply.status_code in {200, 400, 422}, (reply.status_code, reply.text)
    if reply.status_code != 200:
        error_of(reply)
    elif body.get("stream"):
        assert "event: done" in reply.text


QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(QUIET, max_examples=150)
@given(body=WRONG | JSON)
def test_anything(server, body):
    check(server, body)


@settings(QUIET, max_examples=120)
@given(body=RIGHT)
def test_nearly_right(server, body):
    check(server, body)


def test_every_tail(spawn):
    """On a server that can reuse keys and values, which batch-invariant mode cannot."""
    server = spawn().wait_for(200)

    @settings(QUIET, max_examples=60)
    @given(policy=TAILS, blocks=st.sampled_from([None, 2, 3]), seed=st.integers(0, 9))
    def one(policy, blocks, seed):
        check(server, {"prompt": "a dog", **SMALL, "policy": policy, "block_length": blocks, "seed": seed})

    one()


def drawn(strategy, count):
    """`count` values of a strategy, the same in every run: for requests that are sent at once and decoded together."""
    values = []

    @settings(QUIET, max_examples=count)
    @given(value=strategy)
    def one(value):
        values.append(value)

    one()
    return values


def sent(server, requests):
    """Each (path, body) with its answer, eight at a time."""
    with ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda request: server.client.post(request[0], json=request[1]), requests)
        return list(zip(requests, replies, strict=True))


def test_most_valid_requests_are_served(server):
    """A refusal is right where a canvas is too short for its constraint or a gate was not measured there; few are."""
    served = Counter()
    requests = [(path, {**body, "deadline_s": 600}) for path, body in drawn(valid.requests(), 150)]
    for (path, body), reply in sent(server, requests):
        assert reply.status_code in {200, 422}, (body, reply.text)
        served[reply.status_code] += 1
        if reply.status_code == 422:
            assert error_of(reply)["param"], (body, reply.text)
            served[error_of(reply)["message"][:100]] += 1
        elif body["stream"]:
            assert "event: done" in reply.text or "data: [DONE]" in reply.text, body
        else:
            assert len(reply.json()["samples" if path == "/generate" else "choices"]) == body["n"]
    assert served[200] > MOST * served[422], served
    server.wait_idle()


def test_valid_measurements_are_made(server):
    served = Counter()
    for (_, body), reply in sent(server, [("/committor", body) for body in drawn(valid.measurements(), 12)]):
        assert reply.status_code in {200, 202, 422}, (body, reply.text)
        served[reply.status_code] += 1
        if reply.status_code == 422:
            assert error_of(reply)["param"], (body, reply.text)
            served[error_of(reply)["message"][:100]] += 1
    assert served[200] + served[202] > MOST * served[422], served
