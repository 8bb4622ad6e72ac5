"""A bad request fails alone; its neighbours and the engine go on."""

from __future__ import annotations

import pytest
from torch import Tensor

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingError, Handle
from decoding.engine.observer import NullObserver, StepReport
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from tests.decoding.tiny import job, tiny_model


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
                with pytest.raises(DecodingError, match=r"poisoned row|NaN"):
                    handle.result(600)
            else:
                handle.result(600)
        healthy = engine.submit(job(fragile, seed=3, length=6)).result(600)
        assert healthy.tokens == handles[3].result().tokens
        assert sum(h.state.ledger.total for h in handles) + healthy.ledger.total == engine.runner.counts.total


def test_a_model_that_always_raises_fails_every_request_and_the_engine_goes_on(fragile: Fragile) -> None:
    fragile.poison = fragile.spec.mask_id
    with Engine(fragile) as engine:
        for handle in engine.submit_all([job(fragile, seed=i) for i in range(4)]):
            with pytest.raises(DecodingError, match="poisoned"):
                handle.result(600)
        fragile.poison = None
        engine.submit(job(fragile)).result(600)


class Raising(NullObserver):
    """An observer that always fails."""

    def on_step(self, report: StepReport) -> None:
        raise RuntimeError("step")

    def on_end(self, handle: Handle) -> None:
        raise RuntimeError("end")


def test_an_observer_that_raises_does_not_stop_the_engine(model: MiniModel) -> None:
    def on_update(handles: list[Handle]) -> None:
        raise RuntimeError("news")

    with Engine(model, observer=Raising(), on_update=on_update) as engine:
        for seed in range(3):
            assert engine.submit(job(model, seed=seed)).result(600).ledger.total == 24


def test_a_request_that_fails_in_the_kernel_fails_alone(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model)
    good, bad = engine.submit_all([job(model, seed=0), job(model, seed=1)])
    monkeypatch.setattr(bad.state, "apply", lambda *_: 1 / 0)
    while engine.step():
        pass
    good.result()
    with pytest.raises(DecodingError, match="ZeroDivisionError"):
        bad.result()
