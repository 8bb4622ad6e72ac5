"""Settings that would open a server more than its operator means, and signals while it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from service.config.settings import Settings
from tests.service.process import PATIENCE, ROOT, error_of, wait_until

ENDLESS = {"prompt": "a", "gen_length": 32, "steps": 4096, "policy": {"preset": "full_cfg"}}


def refusal(*options, **environment) -> str:
    """What a server says that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--port", "0", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_refused(host):
    assert "--host" in refusal("--host", host)
    assert "--host" in refusal(ASTARGATE_HOST=host)


@pytest.mark.parametrize("text", ["", "# nobody yet\n", "\n , \n"])
def test_a_file_without_keys_opens_no_server(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    assert "holds no key" in refusal("--api-keys-file", str(tmp_path / "keys"))


def test_a_list_without_keys_opens_no_server():
    assert "holds no key" in refusal(ASTARGATE_API_KEYS="# nobody yet")


def test_required_keys_are_required():
    assert "require_keys" in refusal("--require-keys")


@pytest.mark.parametrize(
    ("host", "known"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("example.org", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_who_may_reach_a_host(host, known):
    assert Settings(host=host, api_keys="").is_open_to_all is not known
    assert not Settings(host=host, api_keys="someone:" + "s" * 20).is_open_to_all


def test_a_server_open_to_all_says_so_and_answers_its_names_alone(spawn):
    process = spawn("--host", "0.0.0.0", "--allowed-hosts", "localhost, *.example.org").wait_for(200)
    assert "anybody who reaches 0.0.0.0" in process.log.read_text()
    for name, status in (
        ("localhost:8000", 200),
        ("a.example.org", 200),
        ("LOCALHOST.", 200),
        ("example.org.evil.net", 421),
        ("evil.net", 421),
        ("127.0.0.1", 421),
    ):
        reply = process.client.get("/v1/models", headers={"Host": name})
        assert reply.status_code == status, name
        assert status == 200 or error_of(reply)["code"] == "unknown_host"
        assert process.client.get("/health/ready", headers={"Host": name}).status_code == 200


def test_keys_are_read_anew_and_kept_where_the_file_is_wrong(spawn, tmp_path):
    file = tmp_path / "keys"
    first, second = "first-" + "1" * 20, "second-" + "2" * 20
    file.write_text(f"someone:{first}")
    process = spawn("--api-keys-file", str(file)).wait_for(200)

    def status(key):
        return process.client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code

    assert (status(first), status(second)) == (200, 401)
    file.write_text(f"someone:{second}")
    process.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status(second), lambda seen: seen == 200, "the new key")
    assert status(first) == 401
    for wrong in ("# gone", "someone:short"):
        file.write_text(wrong)
        before = process.log.read_text().count("stay as they were")
        process.process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: process.log.read_text().count("stay as they were"), lambda seen, n=before: seen > n, "a complaint"
        )
        assert status(second) == 200
        assert process.client.get("/v1/models").status_code == 401
    assert process.stop() == 0


def test_a_second_signal_ends_the_drain_with_answers(spawn):
    process = spawn("--drain-seconds", "600").wait_for(200)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(httpx.post, f"{process.url}/generate", json=ENDLESS, timeout=PATIENCE)
        stream = pool.submit(httpx.post, f"{process.url}/generate", json={**ENDLESS, "stream": True}, timeout=PATIENCE)
        process.wait_running(2)
        process.process.send_signal(signal.SIGTERM)
        process.wait_for(503)
        process.process.send_signal(signal.SIGTERM)
        assert error_of(plain.result())["code"] == "shutting_down"
        assert "shutting_down" in stream.result().text
    assert process.process.wait(60) == 0


def test_a_hangup_without_a_file_of_keys_changes_nothing(spawn):
    process = spawn().wait_for(200)
    process.process.send_signal(signal.SIGHUP)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.process.wait(1)
    assert process.client.get("/health/ready").status_code == 200
