"""Audits in the database: queued once, run once though servers die, numbered in one order, forgotten in time."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select, update
from typer.testing import CliRunner

from gate_models.gates.monitor import AuditPair, GateMonitor
from service.backend.watched_gates import AuditedGate
from service.cli import app
from service.config.settings import Settings
from service.metrics.recorder import Metrics
from service.shadow_audit.sample import AuditCandidate
from service.shadow_audit.store import ShadowStore
from service.shadow_audit.tables import AUDITS, GATES
from service.shadow_audit.verdicts import GateVerdicts
from service.storage.leases import MAX_ATTEMPTS, LeaseLostError

MODEL = "hash"
GATE = AuditedGate(MODEL, "commongen-k3", "policy", "v1", 8)
RISK = AuditedGate(MODEL, "ccg-length", "risk", "v1", 8, (("confidence", 0.95), ("margin", 0.03)))
LEASE = 600.0
"""Seconds: none runs out while a test runs, but where the test says so."""


@pytest.fixture
def stores(database):
    """Two servers on one database."""
    return ShadowStore(database, "one", LEASE), ShadowStore(database, "two", LEASE)


def case(index=0, gate=GATE, ok=True, served="handoff"):
    recipe = {"canvas": [1, 2], "place": [0, 1, False], "family": gate.family, "prompt_ids": [index]}
    features = {"schema": "s", "values": {"kl_mean": 0.5}}
    return AuditCandidate(
        gate, served, f"gen-{index}", 0, f"p{index}", 3, ok, "a text", recipe, {"handoff": True}, features
    )


def finish(store, audit, *, handoff=True, full=True):
    store.finish(audit, handoff=handoff, full=full, rows=4, texts={"handoff": "a text", "full": "another"})


def test_an_audit_from_arrival_to_pair(stores):
    store, other = stores
    assert store.keep([case(), case()], {GATE: Counter(kept=2, unfinished=1)}, 10) == 0
    assert other.waiting() == 1
    audit = store.claim(MODEL)
    assert (audit.status, audit.served, audit.handoff_ok, audit.full_ok) == ("running", "handoff", True, None)
    assert audit.recipe == case().recipe
    assert other.claim(MODEL) is None
    finish(store, audit, full=False)
    (pair,) = other.pairs(MODEL, 0)
    assert (pair.sequence, pair.prompt, pair.handoff_ok, pair.full_ok) == (1, "p0", True, False)
    assert other.pairs(MODEL, 1) == other.pairs("another model", 0) == []
    (record,) = other.gates(MODEL)
    assert record.gate == GATE
    assert (record.queued, record.kept, record.unfinished, record.waiting) == (1, 2, 1, 0)
    assert record.handoff_share == pytest.approx(1 / 3)
    assert store.keep([case()], {}, 10) == 0  # sent twice, kept once
    assert store.waiting() == 0


def test_gates_are_told_apart_by_all_that_they_are(stores):
    store, _ = stores
    gates = [GATE, RISK, replace(GATE, version="v2"), replace(GATE, tail_width=1), replace(GATE, model_hash="other")]
    gates.append(replace(RISK, settings=(("confidence", 0.9), ("margin", 0.03))))
    store.keep([case(index, gate) for index, gate in enumerate(gates)], {}, 10)
    own = [gate for gate in gates if gate.model_hash == MODEL]
    assert {record.gate for record in store.gates(MODEL)} == set(own)
    assert {record.gate for record in store.gates(MODEL, "ccg-length")} == {RISK, gates[-1]}


def expire(database):
    with database.write() as connection:
        connection.execute(update(AUDITS).values(lease_until=0.0))


def test_a_dead_server_s_audit_is_run_once_by_another(stores, database):
    store, other = stores
    store.keep([case()], {}, 10)
    lost = store.claim(MODEL)
    expire(database)
    taken = other.claim(MODEL)
    assert (taken.id, taken.token) == (lost.id, 2)
    for write in (store.heartbeat, store.release, lambda audit: finish(store, audit, full=False)):
        with pytest.raises(LeaseLostError):
            write(lost)
    finish(other, taken)
    assert [pair.full_ok for pair in other.pairs(MODEL, 0)] == [True]
    with pytest.raises(LeaseLostError):
        finish(other, taken)


def test_an_audit_that_kills_servers_is_given_up_and_counted_once(stores, database):
    store, other = stores
    store.keep([case()], {}, 10)
    for _ in range(MAX_ATTEMPTS):
        assert store.claim(MODEL) is not None
        expire(database)
    assert store.claim(MODEL) is None
    assert [store.give_up("another model"), store.give_up(MODEL), other.give_up(MODEL)] == [0, 1, 0]
    (record,) = store.gates(MODEL)
    assert (record.failed, record.waiting) == (1, 0)


def test_many_servers_number_pairs_without_gaps(database):
    count = 40
    ShadowStore(database, "any", LEASE).keep([case(index) for index in range(count)], {}, count)
    servers = [ShadowStore(database, f"server{index}", 60) for index in range(5)]

    def drain(server):
        while (audit := server.claim(MODEL)) is not None:
            finish(server, audit)

    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(drain, servers))
    pairs = servers[0].pairs(MODEL, 0)
    assert [pair.sequence for pair in pairs] == list(range(1, count + 1))
    assert len({pair.prompt for pair in pairs}) == count


def test_pairs_of_a_gate_are_numbered_as_they_were_queued_whichever_ends_first(stores):
    store, other = stores
    store.keep([case(index, RISK if index == 3 else GATE) for index in range(6)], {}, 10)
    held = {audit.prompt: audit for audit in (store.claim(MODEL) for _ in range(6))}
    for prompt in ("p5", "p3", "p2", "p1"):
        finish(store, held[prompt])
    assert [pair.prompt for pair in other.pairs(MODEL, 0)] == ["p3"]  # another gate's does not wait
    finish(store, held["p0"])
    assert [pair.prompt for pair in other.pairs(MODEL, 1)] == ["p0", "p1", "p2"]
    store.fail(held["p4"], "a failure of the engine")
    assert [(pair.sequence, pair.prompt) for pair in other.pairs(MODEL, 4)] == [(5, "p5")]


def test_what_finds_no_room_is_counted(stores):
    store, other = stores
    assert store.keep([case(0), case(1, RISK)], {}, 2) == 0
    assert other.keep([case(2), case(3, RISK), case(4, RISK)], {}, 2) == 3
    assert {record.gate: record.dropped for record in store.gates(MODEL)} == {GATE: 1, RISK: 2}


# What servers make of it


def watch(store, metrics=None, **settings):
    return GateVerdicts(store, MODEL, [GATE], Settings(**settings), metrics or Metrics())


def add(store, first, count, *, handoff, full):
    store.keep([case(index) for index in range(first, first + count)], {}, 10_000)
    for _ in range(count):
        finish(store, store.claim(MODEL), handoff=handoff, full=full)


def test_a_server_learns_of_another_s_pairs_and_after_a_restart_knows_the_same(stores, caplog):
    store, other = stores
    mine, theirs = watch(store, audit_margin=0.3), watch(other, audit_margin=0.3)
    add(other, 0, 20, handoff=False, full=True)
    with caplog.at_level("INFO"):
        mine.refresh()
    assert mine.state(GATE) == "suspended"
    assert "suspended by the shadow audit" in mine.suspended(GATE)
    assert [record.levelname for record in caplog.records if "is suspended" in record.getMessage()] == ["WARNING"]
    assert theirs.state(GATE) == "uncertified"
    theirs.refresh()
    expected = GateMonitor.replay([AuditPair(f"p{index}", False, True) for index in range(20)], margin=0.3).verdict
    assert mine.verdict(GATE).counts == theirs.verdict(GATE).counts == expected.counts
    restarted = watch(store, audit_margin=0.3)
    assert restarted.suspended(GATE)  # before a pair has been read
    restarted.refresh()
    assert restarted.verdict(GATE) == mine.verdict(GATE)
    (record,) = store.gates(MODEL)
    since = record.since
    add(store, 20, 40, handoff=True, full=True)
    theirs.refresh()
    mine.refresh()
    assert mine.state(GATE) == theirs.state(GATE) == "active"
    (record,) = store.gates(MODEL)
    assert (record.state, record.since > since) == ("active", True)
    assert watch(store, audit_margin=0.3).state(GATE) == "active"


def test_a_state_that_no_pair_bears_out_ends_with_the_first_look(stores):
    store, _ = stores
    store.changed(GATE, "suspended")
    verdicts = watch(store)
    assert verdicts.suspended(GATE)
    verdicts.refresh()
    assert verdicts.state(GATE) == "uncertified"
    assert store.gates(MODEL)[0].state == "uncertified"


def test_metrics_show_state_and_gap(stores):
    store, _ = stores
    metrics = Metrics()
    verdicts = watch(store, metrics, audit_margin=0.3)
    text = metrics.exposition().decode()
    assert 'astargate_gate_state{family="commongen-k3",state="uncertified"} 1.0' in text
    assert "astargate_audit_gap{" not in text
    add(store, 0, 4, handoff=False, full=True)
    verdicts.refresh()
    verdict = verdicts.verdict(GATE)
    for bound, value in (("estimate", -1.0), ("low", verdict.low), ("high", verdict.high)):
        line = f'astargate_audit_gap{{bound="{bound}",family="commongen-k3",source="policy"}} {value}'
        assert line in metrics.exposition().decode()


# Time


def test_texts_are_forgotten_and_verdicts_are_not(stores, database):
    store, _ = stores
    add(store, 0, 3, handoff=True, full=True)
    store.keep([case(9), case(10, RISK), case(11, replace(GATE, version="old"))], {}, 10)
    store.purge(3600, [GATE.id])
    assert store.waiting() == 3
    with database.write() as connection:
        connection.execute(update(AUDITS).values(created=1.0))
        connection.execute(update(AUDITS).where(AUDITS.c.finished.is_not(None)).values(finished=1.0))
        connection.execute(update(GATES).values(created=1.0))
    store.purge(3600, [GATE.id])
    assert store.waiting() == 0
    assert [record.gate for record in store.gates(MODEL)] == [GATE]
    assert [pair.sequence for pair in store.pairs(MODEL, 0)] == [1, 2, 3]
    with database.read() as connection:
        left = [row for row in connection.execute(select(AUDITS)) if any((row.recipe, row.features, row.texts))]
    assert left == []
    store.purge(3600, [])  # nobody holds the gate; the last number stays taken
    add(store, 20, 1, handoff=True, full=True)
    with database.read() as connection:
        assert connection.scalar(select(func.max(AUDITS.c.sequence))) == 4


# Export


def test_pairs_are_exported(stores, database_url, tmp_path):
    store, _ = stores
    add(store, 0, 3, handoff=True, full=False)
    store.keep([case(7, RISK)], {}, 10)
    finish(store, store.claim(MODEL))
    store.keep([case(8)], {}, 10)  # not run yet
    run = CliRunner().invoke
    options = ["gate", "pairs", "--database", database_url]
    lines, table = tmp_path / "pairs.jsonl", tmp_path / "new" / "pairs.parquet"
    result = run(app, [*options, "--out", str(lines)])
    assert (result.exit_code, "4 pairs" in result.output) == (0, True), result.output
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["sequence"] for row in rows] == [1, 2, 3, 4]
    assert (rows[0]["handoff_ok"], rows[0]["full_ok"], rows[0]["full_text"]) == (True, False, "another")
    assert rows[0]["features"] == {"kl_mean": 0.5}
    assert rows[3]["settings"] == {"confidence": 0.95, "margin": 0.03}
    result = run(app, [*options, "--out", str(table), "--family", "commongen-k3", "--version", "v1"])
    assert result.exit_code == 0, result.output
    columns = pq.read_table(table).to_pylist()
    assert sorted(row["prompt"] for row in columns) == ["p0", "p1", "p2"]
    assert json.loads(columns[0]["features"]) == rows[0]["features"]
    assert json.loads(columns[0]["canvas"]) == [1, 2]
    assert run(app, [*options, "--out", str(tmp_path / "pairs.csv")]).exit_code == 2
