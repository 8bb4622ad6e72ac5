"""The loop on a tiny random model: rows, widths, budgets, ends of text, failures, cancellation."""

from __future__ import annotations

import dataclasses
import math
import threading
import time

import pytest
import torch
from torch import Tensor

from decoding.engine import Engine, EngineClosedError
from decoding.gating import BuiltinGates, Decision, DrainedGate, GateView, NeverGate
from decoding.handle import DecodingError
from decoding.job import Job, Sampling, regime_of
from decoding.models.bert_mini import MiniModel
from decoding.policy import Gate, step_at
from decoding.runner import Runner
from decoding.scheduler import QueueFullError, Scheduler
from decoding.validation import JobError
from tests.decoding.tiny import job, tiny_model


def widths(handle) -> list[tuple[str, int]]:  # noqa: ANN001
    return [(s.phase, len(s.positions)) for s in handle.result(30).trace.steps]


@pytest.mark.parametrize(("length", "steps"), [(12, 12), (12, 20), (12, 5), (1, 1), (1, 7), (64, 64)])
def test_full_cfg_costs_two_rows_a_step(engine: Engine, model: MiniModel, length: int, steps: int) -> None:
    handle = engine.submit(job(model, length=length, steps=steps))
    outcome = handle.result(30)
    assert outcome.ledger.of("conditional") == outcome.ledger.of("unconditional") == steps
    assert outcome.steps == steps
    assert sum(width for _, width in widths(handle)) == length
    assert model.spec.mask_id not in outcome.tokens
    assert outcome.ledger.saved(handle.job.full_cfg_equivalent) == 0


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("tail", [1, 3, 8, 12])
@pytest.mark.parametrize("steps", [12, 16, 24])
def test_handoff_rows(engine: Engine, model: MiniModel, fraction: float, tail: int, steps: int) -> None:
    """2 step_at(f, T) guided rows, then ceil(masks / K) base rows (the schedule's steps for K = 1)."""
    handle = engine.submit(job(model, preset="handoff", fraction=fraction, steps=steps, policy={"tail_width": tail}))
    outcome = handle.result(30)
    guided = step_at(fraction, steps)
    left = max(0, 12 - guided)
    base = steps - guided if tail == 1 else -(-left // tail)
    assert outcome.ledger.of("unconditional") == guided
    assert outcome.ledger.total == 2 * guided + base
    assert outcome.ledger.total == handle.job.planned_rows()
    assert outcome.handoff_step == (guided if guided < steps and (guided or fraction == 0.0) else None)


def test_base_preset_runs_no_unconditional_row(engine: Engine, model: MiniModel) -> None:
    outcome = engine.submit(job(model, preset="base")).result(30)
    assert outcome.ledger.of("unconditional") == 0
    assert outcome.ledger.total == 12


def test_w_zero_equals_base(engine: Engine, model: MiniModel) -> None:
    zero = engine.submit(job(model, preset="full_cfg", policy={"guidance_scale": 0.0})).result(30)
    base = engine.submit(job(model, preset="base")).result(30)
    assert zero.tokens == base.tokens
    assert zero.ledger.total == 12


@pytest.mark.parametrize("width", [2, 5, 12])
def test_parallel_decoding_under_full_cfg(engine: Engine, model: MiniModel, width: int) -> None:
    handle = engine.submit(job(model, policy={"guided_width": width}))
    steps = -(-12 // width)
    assert [w for _, w in widths(handle)] == [min(width, 12 - i * width) for i in range(steps)]
    assert handle.result().ledger.total == 2 * steps == handle.job.planned_rows()


def test_parallel_base_decoding(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", policy={"tail_width": 5}))
    assert widths(handle) == [("base", 5), ("base", 5), ("base", 2)]


def test_a_schedule_that_asks_more_than_the_width_wins(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", steps=2, policy={"tail_width": 2}))
    assert sum(w for _, w in widths(handle)) == 12
    assert handle.result().steps <= 2


def test_adaptive_tail_commits_by_confidence(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", length=32, policy={"tail_width": 6, "tail_threshold": 0.12}))
    outcome = handle.result(30)
    sizes = set()
    for stats in outcome.trace.steps:
        sizes.add(len(stats.positions))
        assert 1 <= len(stats.positions) <= 6
        if len(stats.positions) > 1:
            assert min(stats.confidence) >= 0.12
    assert len(sizes) > 1
    always = engine.submit(
        job(model, preset="base", length=32, policy={"tail_width": 6, "tail_threshold": 0.0})
    ).result(30)
    assert always.ledger.total == math.ceil(32 / 6)


@pytest.mark.parametrize("order", ["confidence", "random", "guidance_boost", "boost_confidence"])
@pytest.mark.parametrize("confidence", ["probability", "margin", "neg_entropy", "random"])
def test_every_order_fills_the_canvas(engine: Engine, model: MiniModel, order: str, confidence: str) -> None:
    request = job(
        model,
        preset="handoff",
        fraction=0.5,
        sampling=Sampling(confidence=confidence),
        policy={"order": order, "tail_width": 4},
    )
    outcome = engine.submit(request).result(30)
    assert model.spec.mask_id not in outcome.tokens


def test_confidence_order_commits_the_most_confident(engine: Engine, model: MiniModel) -> None:
    runner, request = Runner(model, invariant=True), job(model, preset="base")
    from decoding.request import CanvasState

    state = CanvasState(request, model.spec.mask_id, model.spec.end_ids)
    (result,) = runner.run([state])
    event = state.apply(result.candidates, result.positions)
    assert event.positions == (int(result.positions[int(result.candidates.probability.argmax())]),)


def test_blocks_are_decoded_left_to_right(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(
        job(model, preset="handoff", fraction=0.25, length=12, block_length=4, policy={"tail_width": 2})
    )
    order = handle.result(30).trace.commit_order()
    assert [p // 4 for p in order] == sorted(p // 4 for p in order)
    assert handle.result().ledger.total == handle.job.planned_rows()


def test_guided_boost_order_differs_from_confidence(engine: Engine, model: MiniModel) -> None:
    a = engine.submit(job(model, length=32)).result(30).trace.commit_order()
    b = engine.submit(job(model, length=32, policy={"order": "guidance_boost"})).result(30).trace.commit_order()
    assert a != b


# -- gates -----------------------------------------------------------------------------------------------------------


def test_drained_gate_hands_off_when_the_branches_agree(engine: Engine, model: MiniModel) -> None:
    gate = Gate("drained", threshold=0.9)
    request = job(model, preset="handoff", gate=DrainedGate(0.9), policy={"gate": gate}, record="stats", length=24)
    outcome = engine.submit(request).result(30)
    assert outcome.handoff_step is not None
    guided = [s for s in outcome.trace.steps if s.phase == "guided"]
    assert all(s.total_variation_left >= 0.9 for s in guided[:-1])
    assert guided[-1].total_variation_left is None or guided[-1].total_variation_left < 0.9


def test_drained_threshold_one_hands_off_after_one_step_and_tiny_never(engine: Engine, model: MiniModel) -> None:
    for threshold, expected in ((1.0, 1), (1e-9, None)):
        request = job(model, preset="handoff", gate=DrainedGate(threshold), policy={"gate": Gate("drained")})
        assert engine.submit(request).result(30).handoff_step == expected


class Recording:
    """A gate that notes what it was shown and hands off at step 6."""

    source, version, needs_stats = "recording", "test", True

    def __init__(self) -> None:
        self.calls: list[list[GateView]] = []

    def checkpoints(self, steps: int) -> frozenset[int]:
        return frozenset({2, 6})

    def planned_step(self, steps: int) -> None:
        return None

    def decide(self, views: list[GateView]) -> list[Decision]:
        self.calls.append(list(views))
        return [Decision(view.step >= 6) for view in views]


def test_gates_are_causal_batched_and_asked_once_a_checkpoint(model: MiniModel) -> None:
    gate = Recording()
    engine = Engine(model)
    jobs = [job(model, preset="handoff", gate=gate, seed=s, policy={"gate": Gate("drained")}) for s in range(5)]
    handles = engine.submit_all(jobs)
    while engine.step():
        pass
    assert [len(call) for call in gate.calls] == [5, 5]
    for call in gate.calls:
        for view in call:
            assert [s.step for s in view.history] == list(range(view.step))
            assert view.masked == 12 - view.step
    assert all(handle.result().handoff_step == 6 for handle in handles)


def test_a_gate_that_raises_leaves_guidance_on(model: MiniModel) -> None:
    class Broken(Recording):
        def decide(self, views: list[GateView]) -> list[Decision]:
            raise RuntimeError("no")

    engine = Engine(model)
    handle = engine.submit(job(model, preset="handoff", gate=Broken(), policy={"gate": Gate("drained")}))
    while engine.step():
        pass
    outcome = handle.result()
    assert outcome.handoff_step is None
    assert "gate failed" in (outcome.fallback_reason or "")


def test_builtin_gates_resolve_or_say_why(model: MiniModel) -> None:
    gates = BuiltinGates({"commongen-k3": 0.6})
    known = regime_of(job(model, preset="handoff", fraction=0.1, family="commongen-k3"), "hash")
    assert gates.resolve(Gate("constant"), known).gate.fraction == 0.6  # type: ignore[union-attr]
    other = regime_of(job(model, preset="handoff", fraction=0.1, family="commongen-k4"), "hash")
    assert "commongen-k4" in (gates.resolve(Gate("constant"), other).fallback_reason or "")
    nobody = regime_of(job(model, preset="handoff", fraction=0.1), "hash")
    assert "family" in (gates.resolve(Gate("policy"), nobody).fallback_reason or "")
    assert gates.resolve(Gate("fraction", fraction=0.2), nobody).gate is not None


# -- end of text -----------------------------------------------------------------------------------------------------


class EndsEarly(MiniModel):
    """The tiny model with end-of-text made likely."""

    def project(self, features: Tensor) -> Tensor:
        logits = super().project(features)
        logits[:, self.spec.end_ids[0]] += 9.0
        return logits


@pytest.fixture(scope="module")
def ends_early() -> EndsEarly:
    base = tiny_model()
    early = EndsEarly.__new__(EndsEarly)
    early.__dict__.update(base.__dict__)
    return early


@pytest.mark.parametrize("tail", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_eos_fill_skips_rows_and_books_them_apart(ends_early: EndsEarly, tail: int, seed: int) -> None:
    with Engine(ends_early, runner=Runner(ends_early, invariant=True)) as engine:
        request = job(
            ends_early,
            preset="handoff",
            fraction=0.3,
            length=16,
            seed=seed,
            sampling=Sampling(eos_fill=True),
            policy={"tail_width": tail},
        )
        handle = engine.submit(request)
        outcome = handle.result(30)
    end = outcome.tokens.index(ends_early.spec.end_ids[0])
    filled = {position for stats in outcome.trace.steps for position in stats.filled}
    assert filled
    assert min(filled) > end
    assert {outcome.tokens[position] for position in filled} == set(ends_early.spec.end_ids)
    assert outcome.content == outcome.tokens[:end]
    assert outcome.ledger.skipped_by_eos > 0
    assert outcome.ledger.total + outcome.ledger.skipped_by_eos == handle.job.planned_rows(outcome.handoff_step)
    plain_saving = handle.job.full_cfg_equivalent - handle.job.planned_rows(outcome.handoff_step)
    assert outcome.ledger.saved(handle.job.full_cfg_equivalent) == plain_saving


def test_suppress_eos(ends_early: EndsEarly) -> None:
    with Engine(ends_early) as engine:
        outcome = engine.submit(job(ends_early, sampling=Sampling(suppress_eos=True))).result(30)
    assert outcome.finish_reason == "length"
    assert not set(outcome.tokens) & set(ends_early.spec.end_ids)


def test_defer_eos_commits_end_of_text_last(ends_early: EndsEarly) -> None:
    with Engine(ends_early) as engine:
        outcome = engine.submit(job(ends_early, length=24, sampling=Sampling(defer_eos=True))).result(30)
    ends = [t in ends_early.spec.end_ids for s in outcome.trace.steps for t in s.tokens]
    first = ends.index(True)
    assert any(ends)
    masked_before = [s.masked for s in outcome.trace.steps]
    assert first > 0 or masked_before[0] == 24  # something else went first unless nothing else was sampled


# -- failures --------------------------------------------------------------------------------------------------------


class Fragile(MiniModel):
    """Raises on, or gives NaN for, rows that hold a marked prompt token."""

    poison: int | None = None
    nan: int | None = None

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        if self.poison is not None and bool((ids == self.poison).any()):
            raise RuntimeError("poisoned row")
        features = super().encode(ids, prompt_lengths, lengths, always_mask=always_mask)
        if self.nan is not None:
            rows = (ids == self.nan).any(1).repeat_interleave(ids.shape[1])
            features[rows] = float("nan")
        return features


@pytest.fixture
def fragile() -> Fragile:
    broken = Fragile.__new__(Fragile)
    broken.__dict__.update(tiny_model().__dict__)
    return broken


@pytest.mark.parametrize("kind", ["poison", "nan"])
def test_a_bad_request_fails_alone(fragile: Fragile, kind: str) -> None:
    setattr(fragile, kind, fragile.codec.encode_prompt("z")[0])
    jobs = [job(fragile, prompt="z" if i == 5 else "a b c", seed=i, length=6) for i in range(9)]
    with Engine(fragile, runner=Runner(fragile, invariant=True)) as engine:
        handles = engine.submit_all(jobs)
        for index, handle in enumerate(handles):
            if index == 5:
                with pytest.raises(DecodingError, match="poisoned row|NaN"):
                    handle.result(30)
            else:
                handle.result(30)
        healthy = engine.submit(job(fragile, seed=3, length=6)).result(30)
        assert healthy.tokens == handles[3].result().tokens
        assert sum(h.state.ledger.total for h in handles) + healthy.ledger.total == engine.runner.counts.total


def test_a_model_that_always_raises_fails_every_request_and_the_engine_goes_on(fragile: Fragile) -> None:
    fragile.poison = fragile.spec.mask_id
    with Engine(fragile) as engine:
        for handle in engine.submit_all([job(fragile, seed=i) for i in range(4)]):
            with pytest.raises(DecodingError, match="poisoned"):
                handle.result(30)
        fragile.poison = None
        engine.submit(job(fragile)).result(30)


def test_a_request_that_fails_in_the_kernel_fails_alone(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model)
    good, bad = engine.submit_all([job(model, seed=0), job(model, seed=1)])
    monkeypatch.setattr(bad.state, "apply", lambda *_: 1 / 0)
    while engine.step():
        pass
    good.result()
    with pytest.raises(DecodingError, match="ZeroDivisionError"):
        bad.result()


# -- life cycle ------------------------------------------------------------------------------------------------------


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
    handle.result(30)
    canvas = [model.spec.mask_id] * 20
    for event in handle.stream():
        for position, token in zip(event.positions, event.tokens, strict=True):
            canvas[position] = token
    assert tuple(canvas) == handle.result().tokens


def test_on_news_comes_once_a_step(model: MiniModel) -> None:
    news: list[int] = []
    engine = Engine(model, on_news=lambda handles: news.append(len(handles)))
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
        handle.result(1)


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
            results[seed] = engine.submit(job(model, seed=seed % 4, length=8)).result(30).tokens

        threads = [threading.Thread(target=one, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(results[seed] == results[seed % 4] for seed in range(16))


def test_a_full_start_canvas_is_done_at_once(engine: Engine, model: MiniModel) -> None:
    request = job(model, preset="base", policy={"tail_width": 3}, start=(20,) * 12)
    assert engine.submit(request).result(5).ledger.total == 0


def test_never_gate_is_the_default() -> None:
    assert isinstance(Job.__dataclass_fields__["gate"].default_factory(), NeverGate)  # type: ignore[misc]


def test_torch_grad_is_off(engine: Engine, model: MiniModel) -> None:
    assert not any(p.requires_grad for p in model.network.parameters())
    assert not torch.is_inference_mode_enabled()
