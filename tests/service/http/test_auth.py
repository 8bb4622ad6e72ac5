"""API keys over a real socket: who is let in, to what, how often; and how keys are written down."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.config.keys import KeyFormatError, hashed, parse_keys
from service.http.caller_limits import CallerLimits
from service.http.errors import ApiError
from tests.service.process import ROOT, ServerProcess, error_of, wait_until

USER, SCRAPER, ADMIN = "user-secret-0123456789", "scraper-secret-0123456789", "admin-secret-0123456789"
SMALL = {"prompt": "a", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
ENDLESS = {"prompt": "a", "gen_length": 64, "steps": 4096, "policy": {"preset": "full_cfg"}}


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    entries = [hashed("alice", USER), f"scraper:{SCRAPER}:metrics  # plain", "", hashed("root", ADMIN, ["admin"])]
    (folder / "keys").write_text("\n".join(entries))
    options = ["--api-keys-file", str(folder / "keys"), "--protect-metrics", "--protect-playground"]
    process = ServerProcess(folder / "log", *options, "--key-concurrency", "2")
    try:
        yield process.wait_for(200)
    finally:
        process.stop()
    assert not any(secret in process.log.read_text() for secret in (USER, SCRAPER, ADMIN))


@pytest.mark.parametrize("header", [{}, bearer("wrong"), bearer("a b"), {"Authorization": USER}, bearer(USER + "x"),
                                    {"Authorization": "Basic ???"}, bearer("alice"), bearer("x" * 9000)])  # fmt: skip
@pytest.mark.parametrize("path", ["/generate", "/v1/models", "/metrics", "/", "/nowhere"])
def test_without_a_key_nothing_is_told(guarded, header, path):
    reply = guarded.client.request("POST" if path == "/generate" else "GET", path, json=SMALL, headers=header)
    assert reply.status_code == 401
    error = error_of(reply)
    assert error["type"] == "authentication_error"
    assert error["code"] == ("invalid_api_key" if header else "missing_api_key")
    assert reply.headers["www-authenticate"].startswith("Basic" if path == "/" else "Bearer")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/openapi.json", "/docs"])
def test_public_paths_stay_public(guarded, path):
    assert guarded.client.get(path).status_code == 200
    assert guarded.client.get(path, headers=bearer("wrong")).status_code == 200


def test_each_scope_opens_its_own_doors(guarded):
    for secret, use, metrics in ((USER, 200, 403), (SCRAPER, 403, 200), (ADMIN, 200, 200)):
        reply = guarded.client.post("/generate", json=SMALL, headers=bearer(secret))
        assert reply.status_code == use
        assert guarded.client.get("/metrics", headers=bearer(secret)).status_code == metrics
        if use == 403:
            assert (error_of(reply)["type"], error_of(reply)["code"]) == ("permission_error", "missing_scope")


def test_a_browser_sends_the_key_as_a_password(guarded):
    with httpx.Client(base_url=guarded.url, auth=("anyone", USER)) as browser:
        assert browser.get("/").status_code == 200
        assert browser.post("/generate", json=SMALL).status_code == 200
        assert browser.get("/metrics").status_code == 403


def test_one_key_s_requests_do_not_crowd_out_another_s(guarded):
    endless = {**ENDLESS, "stream": True}
    with (
        httpx.Client(base_url=guarded.url, timeout=600, headers=bearer(USER)) as client,
        client.stream("POST", "/generate", json=endless) as one,
        client.stream("POST", "/generate", json=endless),
    ):
        chunks = one.iter_bytes()  # kept: a dropped iterator closes its stream, and its slot is free
        next(chunks)
        refused = client.post("/generate", json=SMALL)
        assert (refused.status_code, error_of(refused)["code"]) == (429, "key_concurrency")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/v1/models").status_code == 200, "reading is not limited"
        assert guarded.client.post("/generate", json=SMALL, headers=bearer(ADMIN)).status_code == 200
    with httpx.Client(base_url=guarded.url, timeout=600, headers=bearer(USER)) as client:
        # The server sees the departure in its own time.
        status = wait_until(
            lambda: client.post("/generate", json=SMALL).status_code, lambda seen: seen != 429, "a slot"
        )
        assert status == 200, "a slot comes back with the request that held it"


def test_the_rate_is_limited_without_keys_too(spawn):
    process = spawn("--key-requests-per-minute", "3").wait_for(200)
    replies = [process.client.post("/generate", json=SMALL) for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert error_of(replies[-1])["code"] == "key_rate"
    assert 1 <= int(replies[-1].headers["retry-after"]) <= 20
    assert process.metrics()['astargate_admission_rejections_total{reason="key_rate"}'] == 1


def test_the_bucket_refills_evenly():
    now = 0.0
    limits = CallerLimits(None, 30, clock=lambda: now)
    for _ in range(30):
        limits.enter("a")
    with pytest.raises(ApiError) as refused:
        limits.enter("a")
    assert refused.value.headers["Retry-After"] == "2"
    limits.enter("b")
    now = 2.0
    limits.enter("a")
    with pytest.raises(ApiError):
        limits.enter("a")
    assert limits.running == {"a": 31, "b": 1}


@given(st.text(alphabet="abc:,+#sha256 \n", max_size=40) | st.text(max_size=40))
def test_any_key_file_is_read_or_refused(text):
    try:
        ring = parse_keys(text)
    except KeyFormatError:
        return
    assert (ring.anonymous is None) == bool(ring.entries)
    assert ring.find("") is None


@pytest.mark.parametrize(
    "entry",
    ["alice", "alice:short", "a b:0123456789abcdef", "anonymous:0123456789abcdef", "a:0123456789abcdef:god",
     "a:sha256:12", "a:0123456789abcdef,a:0123456789abcdex", "a:0123456789abcdef,b:0123456789abcdef",
     "a:0123456789abcdef:use:use"],
)  # fmt: skip
def test_a_malformed_key_is_refused_and_not_told(entry):
    with pytest.raises(KeyFormatError) as refused:
        parse_keys(entry)
    assert "0123456789abcdef" not in str(refused.value)


def run(*arguments):
    command = [sys.executable, "-m", "service.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_new_key_opens_what_its_entry_says():
    lines = run("key", "new", "bob", "--scopes", "metrics+use").stdout.split()
    secret, entry = lines[1], lines[3]
    assert secret not in entry
    caller = parse_keys(entry).find(secret)
    assert (caller.key_id, caller.scopes) == ("bob", {"metrics", "use"})
    assert run("key", "new", "bob", "--scopes", "root").returncode == 2


def test_settings_that_protect_nothing_are_refused():
    for option in ("--protect-metrics", "--protect-playground"):
        done = run("serve", option)
        assert done.returncode == 2
        assert "API keys" in done.stderr
    done = run("serve", "--api-keys-file", "nowhere.keys")
    assert (done.returncode, "api_keys_file" in done.stderr) == (2, True)
