"""The benchmark measures what it says; speed itself is never asserted."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from decoding.models.bert_mini import int8 as bert_mini_int8
from decoding.models.compute import compute_mode
from decoding.models.registry import load_model
from gate_models.offline.bench import run as bench
from gate_models.offline.bench.run import run, table
from gate_models.offline.bench.sequential_baseline import decode_sequentially
from gate_models.offline.bench.settings import BenchSettings
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.policies.names import parse_policy
from tests.decoding.tiny import tiny_model


def test_bench_covers_every_cell_and_counts_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = BenchSettings(requests=3, repeats=1, concurrency=(1, 3), gen_length=8)
    result = run(settings, tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text(), parse_constant=pytest.fail) == json.loads(
        json.dumps(result)
    )
    rows = {(cell["policy"], cell["how"]): cell["rows_per_request"] for cell in result["cells"]}
    for policy, expected in (("full_cfg", 16), ("base", 8), ("handoff:0.3:k8", 2 * 2 + 1)):
        own = {how: value for (name, how), value in rows.items() if name == policy}
        assert set(own) == {"sequential loop", "concurrency 1", "concurrency 3", "concurrency 3 invariant"}
        assert set(own.values()) == {expected}
    for cell in result["cells"]:
        assert cell["requests_per_s"] > 0
        assert (cell["outside_model"] is None) == (cell["how"] == "sequential loop")
        assert ("share_of_peak_flops" in cell) == (cell["how"] == "concurrency 3")
    assert table(result) in capsys.readouterr().out
    assert "nan" not in table(result)


@pytest.mark.parametrize(
    ("name", "value"),
    [("concurrency", (0,)), ("concurrency", (8, -1)), ("concurrency", ()), ("requests", 0), ("repeats", 0)],
)
def test_nothing_to_measure_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}.*at least 1"):
        BenchSettings(**{name: value})


@pytest.mark.parametrize("task", ["held-out-wording", "ccg-length", "ifeval-no-comma"])
def test_any_task_can_be_asked(task: str) -> None:
    model, prompt = tiny_model(), load_task(task, 1)[0]
    named, settings = parse_policy("base"), BenchSettings(gen_length=4, requests=1)
    expected = tuple(model.codec.encode_prompt(prompt.text()))
    assert bench._job(model, named, prompt, settings, 0).prompt_ids == expected
    assert bench._sequential_run(model, named, [prompt], settings).rows == 4


@pytest.mark.skipif(not bert_mini_int8.supported(), reason="this CPU has no VNNI instructions")
def test_products_in_8_bits_count_like_those_that_they_replace() -> None:
    settings = BenchSettings(gen_length=4, requests=1)
    counts = []
    for form in ("none", "int8"):
        model = load_model("mini", quantization=form)
        call = partial(bench._sequential_run, model, parse_policy("full_cfg"), load_task("commongen", 1), settings)
        counts.append(bench.flops_of(call))
    assert counts[0] == counts[1] > 0


def test_the_peak_is_that_of_the_device_and_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waited, model = [], [], tiny_model()
    measure = bench.peak_flops

    def peak(device: torch.device, dtype: torch.dtype) -> float:
        asked.append((device, dtype))
        return measure(device, dtype, repeats=1)

    monkeypatch.setattr(bench, "peak_flops", peak)
    settings = BenchSettings(dtype="bfloat16", requests=1, repeats=1, concurrency=(1,), gen_length=8)
    bench._measure(settings, model, load_task("commongen", 1))
    assert asked == [(model.device, torch.bfloat16)] * 2
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    for device in ("cpu", "cuda:0"):
        bench._synchronise(torch.device(device))
    assert waited == [torch.device("cuda:0")]


def test_the_floating_point_mode_is_put_back() -> None:
    """Flushing denormals is a mode of the whole thread: our caller must not inherit it."""
    threads = torch.get_num_threads()
    with compute_mode(threads + 1):
        assert torch.tensor([1e-310], dtype=torch.float64).mul(0.5).item() == 0.0
        assert torch.get_num_threads() == threads + 1
    assert torch.tensor([1e-310], dtype=torch.float64).mul(0.5).item() > 0.0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("handoff", "tail", "rows"), [(8, 1, 16), (0, 1, 8), (3, 5, 7)])
def test_the_sequential_loop_decodes_whole_canvases(handoff: int, tail: int, rows: int) -> None:
    model = load_model("mini")
    prompt = model.codec.encode_prompt("Write one sentence. Use the words: dog, ball.")
    done = decode_sequentially(model, prompt, 8, scale=2.0, handoff=handoff, tail_width=tail, seed=0)
    assert done.rows == rows
    assert not set(done.tokens) & set(model.spec.suppressed_ids)


def test_the_sequential_loop_stays_on_the_model_s_device() -> None:
    """Whatever it makes without naming the device lands on `meta` here, and cannot be used."""
    model = tiny_model()
    prompt = model.codec.encode_prompt("a b c")
    settings: dict[str, Any] = {"scale": 2.0, "handoff": 2, "tail_width": 2, "seed": 0}
    expected = decode_sequentially(model, prompt, 6, **settings)
    with torch.device("meta"):
        assert decode_sequentially(model, prompt, 6, **settings) == expected


def test_the_sequential_loop_hides_of_the_prompt_what_the_runner_hides() -> None:
    model, seen = tiny_model(), []
    prompt = model.codec.encode_prompt("a b c")
    model.spec = dataclasses.replace(model.spec, keep_prompt_ids=(prompt[1],))
    encode = model.encode

    def recording(ids: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        seen.append(ids[:, : len(prompt)].tolist())
        return encode(ids, *arguments, **options)

    model.encode = recording  # type: ignore[method-assign]
    decode_sequentially(model, prompt, 1, scale=2.0, handoff=1, tail_width=1, seed=0)
    mask = model.spec.mask_id
    assert seen == [[prompt, [token if token == prompt[1] else mask for token in prompt]]]
