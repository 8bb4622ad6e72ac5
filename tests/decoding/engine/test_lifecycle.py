"""Submission, cancellation, deadlines, events, drain, admission, validation."""

from __future__ import annotations

import dataclasses
import math
import threading
import time

import pytest
import torch

from decoding.engine.engine import Engine, EngineClosedError
from decoding.engine.handle import DecodingError
from decoding.engine.runner import Runner
from decoding.engine.scheduler import QueueFullError, Scheduler
from decoding.gates.builtin import NeverGate
from decoding.models.bert_mini.network import MiniModel
from decoding.request.job import Job, Sampling
from decoding.request.validation import JobError
from tests.decoding.tiny import job


def test_cancellation_frees_rows_in_the_very_next_step(model: MiniModel) -> None:
    engine = Engine(model)
    a, b = engine.submit_all([job(model, seed=0), job(model, seed=1)])
    engine.step()
    a.cancel()
    before = engine.runner.counts.total
    engine.step()
    assert engine.runner.counts.total - before == 2
    with pytest.raises(DecodingError, match="cancelled") as caught:
        a.result()
    assert caught.value.reason == "cancelled"
    b.cancel()
    assert not engine.step()
    assert engine.scheduler.queued_rows == 0


def test_deadline(model: MiniModel) -> None:
    engine = Engine(model)
    handle = engine.submit(job(model, deadline=time.monotonic() - 1))
    assert not engine.step()
    with pytest.raises(DecodingError) as caught:
        handle.result()
    assert caught.value.reason == "deadline"


def test_events_tell_the_whole_canvas_and_slow_readers_lose_nothing(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, length=20))
    handle.result(600)
    canvas = [model.spec.mask_id] * 20
    for event in handle.stream():
        for position, token in zip(event.positions, event.tokens, strict=True):
            canvas[position] = token
    assert tuple(canvas) == handle.result().tokens


def test_on_news_comes_once_a_step(model: MiniModel) -> None:
    news: list[int] = []
    engine = Engine(model, on_update=lambda handles: news.append(len(handles)))
    engine.submit_all([job(model, seed=i, length=6) for i in range(3)])
    while engine.step():
        pass
    assert news == [3] * 6


def test_drain_finishes_running_work_and_refuses_new(model: MiniModel) -> None:
    with Engine(model) as engine:
        handle = engine.submit(job(model, length=32))
        assert engine.drain(30)
        assert handle.done
        with pytest.raises(EngineClosedError):
            engine.submit(job(model))


def test_close_cancels_what_is_left(model: MiniModel) -> None:
    engine = Engine(model)
    handle = engine.submit(job(model))
    engine.close()
    with pytest.raises(DecodingError, match="shutting down"):
        handle.result(600)


def test_queue_limit_admits_all_or_none(model: MiniModel) -> None:
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=60))
    engine.submit(job(model))
    with pytest.raises(QueueFullError):
        engine.submit_all([job(model, seed=1), job(model, seed=2)])
    assert engine.scheduler.queued == 1
    engine.submit(job(model, seed=1))


def test_an_empty_canvas_is_refused(model: MiniModel) -> None:
    with pytest.raises(JobError) as caught:
        Engine(model).submit(dataclasses.replace(job(model), gen_length=0))
    assert caught.value.param == "gen_length"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"length": 65}, "gen_length"),
        ({"steps": 0}, "steps"),
        ({"steps": 5000}, "steps"),
        ({"prompt": "a " * 449}, "prompt"),
        ({"block_length": 5}, "block_length"),
        ({"block_length": 4, "steps": 13}, "block_length"),
        ({"sampling": Sampling(temperature=math.nan)}, "temperature"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature"),
        ({"sampling": Sampling(top_p=0.0)}, "top_p"),
        ({"sampling": Sampling(confidence="vibes")}, "confidence"),
        ({"sampling": Sampling(suppress_eos=True, eos_fill=True)}, "eos_fill"),
        ({"start": (2,) * 11}, "start"),
        ({"start": (2,) * 11 + (999,)}, "start"),
        ({"start": (2,) * 12, "start_step": 13}, "start_step"),
        ({"start": (2,) * 12, "start_step": 12}, "start_step"),
        ({"start_step": 3}, "start_step"),
    ],
)
def test_malformed_jobs_are_refused_by_name(model: MiniModel, changes: dict, param: str) -> None:  # type: ignore[type-arg]
    with pytest.raises((JobError, ValueError)) as caught:
        Engine(model).submit(job(model, **changes))
    assert getattr(caught.value, "param", param) == param


def test_submitting_from_many_threads(model: MiniModel) -> None:
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        results: dict[int, tuple[int, ...]] = {}

        def one(seed: int) -> None:
            results[seed] = engine.submit(job(model, seed=seed % 4, length=8)).result(600).tokens

        threads = [threading.Thread(target=one, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(results[seed] == results[seed % 4] for seed in range(16))


def test_a_full_start_canvas_is_done_at_once(engine: Engine, model: MiniModel) -> None:
    request = job(model, preset="base", policy={"tail_width": 3}, start=(20,) * 12)
    assert engine.submit(request).result(600).ledger.total == 0


def test_never_gate_is_the_default() -> None:
    assert isinstance(Job.__dataclass_fields__["gate"].default_factory(), NeverGate)  # type: ignore[misc]


def test_torch_grad_is_off(engine: Engine, model: MiniModel) -> None:
    assert not any(p.requires_grad for p in model.network.parameters())
    assert not torch.is_inference_mode_enabled()
