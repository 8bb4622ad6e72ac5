"""A small soak; `python -m tests.service.load.soak --requests 10000` is the large one."""

from __future__ import annotations

import sys

import pytest

from tests.service.load.soak import OPTIONS, soak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_hostile_clients_leave_nothing_behind(spawn):
    server = spawn(*OPTIONS).wait_for(200)
    report = soak(server, 300, workers=12, seed=7)
    assert report.faults == []
    assert {"200 ok", "422", "left"} <= set(report.outcomes)
    assert report.jobs
    assert "Traceback" not in server.log.read_text()
