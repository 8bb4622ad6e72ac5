"""The shadow audit through real servers: over HTTP, across a kill, by key."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from service.shadow_audit.sample import AuditCandidate
from service.shadow_audit.store import ShadowStore
from service.storage.database import open_database
from tests.service.process import error_of, total, wait_until
from tests.service.shadow_audit.shadowing import BODY, Desk
from tests.shipped import mini

ADMIN = "an-admin-secret-of-some-length"
USER = "a-users-secret-of-some-length"
WATCHED = ("commongen-k3", "constant", 8)


def pairs(server):
    data = server.client.get("/v1/gates/commongen-k3/audit", headers=bearer(ADMIN)).json()["data"]
    return next(gate for gate in data if gate["tail_width"] == 8 and gate["source"] == "constant")


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_an_audit_outlives_the_server_that_queued_it(spawn, tmp_path):
    """Queued by a server that runs none, which is killed; run once by the next one, which says so everywhere."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    options = ("--batch-invariant", "--audit-share", "1", "--database", url)
    first = spawn(*options, "--audit-in-flight", "0").wait_for(200)
    answer = first.generate({**BODY, "n": 3})
    assert [sample["forward_evaluations"]["audit"] for sample in answer["samples"]] == [0, 0, 0]
    queued = wait_until(lambda: pairs(first), lambda gate: gate["waiting"] == 3, "the queued audits")
    assert (queued["pairs"], queued["chosen"]["handed_off"], queued["handoff_share"]) == (0, 3, 1.0)
    first.stop(signal.SIGKILL)
    second = spawn(*options).wait_for(200)
    done = wait_until(lambda: pairs(second), lambda gate: gate["pairs"] == 3, "the pairs")
    assert (done["waiting"], done["dropped"], done["state"], done["prompts"]) == (0, 0, "uncertified", 1)
    assert sum(done["counts"].values()) == 3
    ok = sum(sample["satisfied"] for sample in answer["samples"])
    assert done["counts"]["ok_ok"] + done["counts"]["ok_fail"] == ok
    assert (done["margin"], done["confidence"], done["share"], done["offered"]) == (0.03, 0.95, 1.0, True)
    assert done["gap"]["low"] <= done["gap"]["estimate"] <= done["gap"]["high"]
    assert done["itt_gap"] == done["gap"]
    metrics = second.metrics()
    assert total(metrics, "audit_pairs_total", family="commongen-k3") == 3
    assert total(metrics, "forward_rows_total", purpose="audit") == 3 * 2 * 6  # the last six steps, guided
    assert total(metrics, "forward_rows_total", purpose="generate") == 0
    assert total(metrics, "gate_state", family="commongen-k3", state="uncertified") == 1
    listed = second.client.get("/v1/gates").json()["data"]
    cuts = [gate for gate in listed if gate["version"] == "constants-1" and gate["regime"]["tail_width"] == 8]
    states = {(gate["family"], gate["source"]): gate["state"] for gate in cuts}
    assert states["commongen-k3", "constant"] == "uncertified"
    assert states["commongen-k10", "constant"] == "uncertified"
    unknown = error_of(second.client.get("/v1/gates/no-family/audit"))
    assert (unknown["code"], unknown["param"]) == ("not_found", "family")
    others = second.client.get("/v1/gates/ccg-length/audit").json()["data"]
    assert {(gate["pairs"], gate["state"], gate["since"]) for gate in others} <= {(0, "uncertified", None)}
    assert error_of(second.client.post("/generate", json={**BODY, "audit_share": 1.0}))["code"] == "missing_scope"


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"boss:{ADMIN}:use+admin\nuser:{USER}:use\n")
    return path


def test_only_an_operator_chooses_the_share_of_a_request(spawn, keys):
    server = spawn("--audit-share", "0", "--api-keys-file", str(keys)).wait_for(200)
    for secret, share, status in ((USER, 1.0, 403), (ADMIN, 1.0, 200), (ADMIN, 2.0, 422), (USER, None, 200)):
        body = {**BODY, **({} if share is None else {"audit_share": share})}
        reply = server.client.post("/generate", json=body, headers=bearer(secret))
        assert reply.status_code == status, reply.text
    refused = {**BODY, "audit_share": 1.0, "policy": {"preset": "full_cfg"}}
    error = error_of(server.client.post("/generate", json=refused, headers=bearer(ADMIN)))
    assert (error["param"], "drained" in error["message"]) == ("audit_share", True)
    gate = wait_until(lambda: pairs(server), lambda gate: gate["pairs"] == 1, "the operator's pair")
    assert gate["chosen"]["handed_off"] == 1


def test_a_suspended_gate_falls_back_over_http(spawn, tmp_path):
    """Pairs of another server have suspended the gate: its requests fall back, and are shadowed the other way."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    database = open_database(url)
    desk = Desk(database)
    gate = next(gate for gate in desk.shadow.watch.held if (gate.family, gate.source, gate.tail_width) == WATCHED)
    store = ShadowStore(database, "other", 60)
    case = AuditCandidate(gate, "full", "gen-0", 0, "p0", 3, True, "", {"family": gate.family}, None, None)
    cases = [replace(case, request_id=f"gen-{index}", prompt=f"p{index}") for index in range(12)]
    store.keep(cases, {}, 100)
    for _ in cases:
        store.finish(store.claim(mini().spec.hash), handoff=False, full=True, rows=1, texts={})
    database.close()
    server = spawn("--batch-invariant", "--audit-share", "1", "--database", url).wait_for(200)
    suspended = wait_until(lambda: pairs(server), lambda gate: gate["state"] == "suspended", "the suspension")
    assert (suspended["pairs"], suspended["epoch"], suspended["epoch_pairs"]) == (12, 1, suspended["epoch_pairs"])
    (sample,) = server.generate(BODY)["samples"]
    assert (sample["gate"]["decision"], sample["gate"]["version"]) == ("full_cfg", None)
    assert sample["gate"]["fallback_reason"].startswith("gate suspended by the shadow audit")
    assert sample["forward_evaluations"]["total"] == 32
    reject = {**BODY, "policy": {**BODY["policy"], "on_fallback": "reject"}}
    assert error_of(server.client.post("/generate", json=reject))["code"] == "gate_unavailable"
    shadowed = wait_until(lambda: pairs(server), lambda gate: gate["pairs"] == 13, "the shadowed handoff")
    assert shadowed["epoch_pairs"] == suspended["epoch_pairs"] + 1
    metrics = server.metrics()
    assert total(metrics, "gate_fallbacks_total", family="commongen-k3", reason="suspended") == 1
    assert total(metrics, "gate_state", family="commongen-k3", state="suspended") == 1
    assert total(metrics, "forward_rows_total", purpose="audit", branch="unconditional") == 0
    assert "WARNING: service.shadow_audit.verdicts: gate constant" in server.log.read_text()
