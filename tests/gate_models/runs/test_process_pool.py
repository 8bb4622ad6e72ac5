"""Local processes: results, failures, deaths. Real processes throughout."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from gate_models.offline.runs.process_pool import PoolStoppedError, Processes, Report, WorkerError


class Doubler:
    """Doubles numbers; negative ones fail, `mark` makes the process kill itself (once: the file remembers)."""

    def __init__(self, mark: Path, always: bool = False) -> None:
        self.mark, self.always = mark, always

    @property
    def info(self) -> str:
        return "doubler"

    def run(self, item: int, report: Report) -> int:
        if item < 0:
            raise ValueError(f"{item} is negative")
        if item == 13 and (self.always or not self.mark.exists()):
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        report(item)
        return 2 * item


class SlowAgain(Doubler):
    """Is made at once the first time; a restarted one takes an hour, and says by a file that it has begun."""

    def __init__(self, mark: Path) -> None:
        super().__init__(mark)
        if mark.exists():
            mark.with_name("restarting").touch()
            time.sleep(3600)


class Broken:
    """Cannot be made."""

    info = None

    def __init__(self) -> None:
        raise ValueError("no such model")

    def run(self, item: int, report: Report) -> int:
        return item


def test_every_item_once_also_when_a_worker_dies(tmp_path: Path) -> None:
    amounts: list[int] = []
    with Processes[int, int](Doubler, (tmp_path / "mark",), 2) as pool:
        assert pool.ready() == "doubler"
        results = sorted(pool.map([1, 2, 13, 4], amounts.append))
    assert results == [2, 4, 8, 26]
    assert sorted(amounts) == [1, 2, 4, 13]
    assert (tmp_path / "mark").exists()


def test_an_item_that_kills_two_workers_ends_the_run(tmp_path: Path) -> None:
    with Processes[int, int](Doubler, (tmp_path / "mark", True), 1) as pool:
        pool.ready()
        with pytest.raises(WorkerError, match="died 2 times"):
            list(pool.map([13], lambda amount: None))


def test_what_a_worker_says_is_passed_on(tmp_path: Path) -> None:
    with Processes[int, int](Doubler, (tmp_path / "mark",), 1) as pool:
        pool.ready()
        with pytest.raises(WorkerError, match="-3 is negative"):
            list(pool.map([-3], lambda amount: None))
    with Processes[int, int](Broken, (), 1) as pool, pytest.raises(WorkerError, match="no such model"):
        pool.ready()


def test_a_stop_ends_the_run_and_its_workers(tmp_path: Path) -> None:
    with Processes[int, int](Doubler, (tmp_path / "mark",), 1) as pool:
        pool.ready()
        results = pool.map(range(10), lambda amount: None)
        assert next(results) == 0
        pool.stop()
        with pytest.raises(PoolStoppedError):
            list(results)
        workers = [live.process for live in pool._live]
    assert not any(process.is_alive() for process in workers)


def test_a_stop_is_heeded_while_a_worker_starts_again(tmp_path: Path) -> None:
    def stop_when_restarting() -> None:
        while not (tmp_path / "restarting").exists():
            time.sleep(0.05)
        pool.stop()

    with Processes[int, int](SlowAgain, (tmp_path / "mark",), 1) as pool:
        pool.ready()
        stopper = threading.Thread(target=stop_when_restarting, daemon=True)
        stopper.start()
        with pytest.raises(PoolStoppedError):
            list(pool.map([13], lambda amount: None))
        stopper.join()


def test_no_workers_is_no_pool() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Processes[int, int](Doubler, (), 0)
