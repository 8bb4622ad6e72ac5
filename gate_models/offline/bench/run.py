"""`astargate bench`: throughput of the engine against a plain sequential loop, in one run, as ratios.

Every configuration decodes the same prompts; configurations take turns over `repeats` rounds and the median counts,
because machines are shared and noisy. FLOPs come from PyTorch's counter, the peak from a matrix product timed in the
same run, in the dtype of the settings: 8-bit products count as the float32 ones that they replace, and may exceed it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.observer import NullObserver, StepReport
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.bert_mini import int8
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import DTYPES, load_model
from decoding.request.job import Job
from decoding.sampling.block_schedule import step_at
from decoding.sampling.noise import NoiseKey
from gate_models.offline.bench.sequential_baseline import decode_sequentially
from gate_models.offline.bench.settings import BenchSettings
from gate_models.offline.benchmarks.tasks import TaskPrompt, load_task
from gate_models.offline.runs import markdown
from gate_models.offline.runs.result_file import write_json
from gate_models.offline.runs.versions import header
from gate_models.policies.names import NamedPolicy, parse_policy

POLICIES = ("full_cfg", "base", "handoff:0.3:k8")
PEAK_SIZE = {"cuda": 8192}
"""Side of the matrix product that shows a device's peak (1024 elsewhere): large enough to fill it."""


class _Clock(NullObserver):
    """Adds up step times."""

    def __init__(self) -> None:
        self.seconds = self.model_seconds = 0.0

    def on_step(self, report: StepReport) -> None:
        self.seconds += report.seconds
        self.model_seconds += report.model_seconds


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration once."""

    seconds: float
    rows: int
    outside: float | None
    """Share of the time outside the model; None where it is not measured."""
    tokens: tuple[tuple[int, ...], ...] = ()
    """What was decoded, request by request."""


def _engine_run(
    model: DenoisingModel,
    named: NamedPolicy,
    prompts: list[TaskPrompt],
    settings: BenchSettings,
    concurrency: int,
    invariant: bool,
) -> Run:
    clock = _Clock()
    scheduler: Scheduler[Handle] = Scheduler(max_rows=max(2, 2 * concurrency), max_queued_rows=2**62)
    engine = Engine(model, runner=Runner(model, invariant=invariant), scheduler=scheduler, observer=clock)
    jobs = [_job(model, named, prompt, settings, index) for index, prompt in enumerate(prompts)]
    handles: list[Handle] = []
    running: list[Handle] = []
    began, waiting = time.perf_counter(), jobs[::-1]
    while waiting or running:
        while waiting and len(running) < concurrency:
            handles.append(engine.submit(waiting.pop()))
            running.append(handles[-1])
        engine.step()
        running = [handle for handle in running if not handle.done]
    seconds = time.perf_counter() - began
    tokens = tuple(handle.result().tokens for handle in handles)
    return Run(seconds, engine.runner.counts.total, 1 - clock.model_seconds / seconds, tokens)


def _job(model: DenoisingModel, named: NamedPolicy, prompt: TaskPrompt, settings: BenchSettings, index: int) -> Job:
    ids = tuple(model.codec.encode_prompt(prompt.text()))
    key = NoiseKey(settings.seed + index)
    return Job(ids, settings.gen_length, settings.gen_length, named.policy, key, gate=named.gate)


def _sequential_run(
    model: DenoisingModel, named: NamedPolicy, prompts: list[TaskPrompt], settings: BenchSettings
) -> Run:
    planned = named.gate.planned_step(settings.gen_length)
    handoff = 0 if named.policy.guidance_scale == 0 else settings.gen_length if planned is None else planned
    began, rows = time.perf_counter(), 0
    for index, prompt in enumerate(prompts):
        rows += decode_sequentially(
            model,
            model.codec.encode_prompt(prompt.text()),
            settings.gen_length,
            scale=named.policy.guidance_scale,
            handoff=handoff,
            tail_width=named.policy.tail_width,
            seed=settings.seed + index,
        ).rows
    return Run(time.perf_counter() - began, rows, None)


def peak_flops(device: torch.device, dtype: torch.dtype, repeats: int = 8) -> float:
    """Best FLOP/s of a square matrix product on `device` in `dtype`, with the current thread count."""
    size = PEAK_SIZE.get(device.type, 1024)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(repeats):
        _synchronise(device)
        began = time.perf_counter()
        a @ b
        _synchronise(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def _synchronise(device: torch.device) -> None:
    """Wait for work on a GPU, which runs behind the program."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def flops_of(call: Callable[[], object]) -> int:
    """Multiplications and additions of the matrix products of `call`, those in 8 bits among them."""
    coded = {torch.ops.onednn.qlinear_pointwise: _int8_flops} if int8.supported() else {}
    with FlopCounterMode(display=False, custom_mapping=coded) as counter:
        call()
    return int(counter.get_total_flops())


def _int8_flops(codes: torch.Size, *rest: object, out_shape: torch.Size, **named: object) -> int:
    """Of codes [M, K] times weights [K, N]."""
    return 2 * math.prod(out_shape) * codes[-1]


def run(settings: BenchSettings, out: Path | None = None) -> dict[str, Any]:
    """Measure, print a Markdown table, return (and write to `out`) the result."""
    prompts = load_task("commongen", settings.requests)
    with compute_mode(settings.threads):
        result = _measure(settings, load_model(settings.model, device=settings.device, dtype=settings.dtype), prompts)
    print(table(result))
    if out is not None:
        write_json(out, result)
    return result


def _measure(settings: BenchSettings, model: DenoisingModel, prompts: list[TaskPrompt]) -> dict[str, Any]:
    cells: dict[tuple[str, str], Callable[[], Run]] = {}
    for name in POLICIES:
        named = parse_policy(name)
        cells[name, "sequential loop"] = partial(_sequential_run, model, named, prompts, settings)
        for concurrency in settings.concurrency:
            for mode in ("", " invariant") if concurrency == max(settings.concurrency) else ("",):
                how = f"concurrency {concurrency}{mode}"
                cells[name, how] = partial(_engine_run, model, named, prompts, settings, concurrency, bool(mode))
    runs: dict[tuple[str, str], list[Run]] = {cell: [] for cell in cells}
    peak = partial(peak_flops, model.device, DTYPES[settings.dtype])
    peaks = [peak()]
    with tqdm(total=len(cells) * settings.repeats, unit="run") as bar:
        for _ in range(settings.repeats):
            for cell, call in cells.items():
                runs[cell].append(call())
                bar.update()
            peaks.append(peak())
    widest = f"concurrency {max(settings.concurrency)}"
    flops = {name: flops_of(cells[name, widest]) for name in POLICIES}
    return _result(settings, model, runs, max(peaks), flops, widest)


def _result(
    settings: BenchSettings,
    model: DenoisingModel,
    runs: dict[tuple[str, str], list[Run]],
    peak: float,
    flops: dict[str, int],
    widest: str,
) -> dict[str, Any]:
    cells = []
    for (policy, how), repeats in runs.items():
        seconds = statistics.median(run.seconds for run in repeats)
        ratio = statistics.median(
            base.seconds / run.seconds for base, run in zip(runs[policy, "sequential loop"], repeats, strict=True)
        )
        cell = {
            "policy": policy,
            "how": how,
            "requests_per_s": settings.requests / seconds,
            "rows_per_s": repeats[0].rows / seconds,
            "rows_per_request": repeats[0].rows / settings.requests,
            "times_sequential": ratio,
            "outside_model": _median([run.outside for run in repeats]),
        }
        if how == widest:
            cell["share_of_peak_flops"] = flops[policy] / seconds / peak
            alone = runs[policy, f"concurrency {min(settings.concurrency)}"][0].tokens
            cell["requests_that_differ"] = sum(a != b for a, b in zip(alone, repeats[0].tokens, strict=True))
        cells.append(cell)
    return {
        "seed": settings.seed,
        **header(model.spec, settings),
        "torch": torch.__version__,
        "handoff_step": step_at(0.3, settings.gen_length),
        "peak_gflops": peak / 1e9,
        "cells": cells,
    }


def _median(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    settings = result["settings"]
    heads = "policy|how|requests/s|rows/s|rows/request|x sequential|outside the model|of peak FLOP/s".split("|")
    compared = [cell for cell in result["cells"] if "requests_that_differ" in cell]
    differing, total = sum(cell["requests_that_differ"] for cell in compared), len(compared) * settings["requests"]
    few, many = min(settings["concurrency"]), max(settings["concurrency"])
    parts = [
        f"{settings['requests']} CommonGen prompts, canvas and steps {settings['gen_length']}, "
        f"{settings['threads']} thread(s), "
        f"median of {settings['repeats']} rounds; matrix-product peak {result['peak_gflops']:.0f} GFLOP/s in "
        f"{settings['dtype']}.",
        "",
        markdown.table(heads, [_row(cell) for cell in result["cells"]]),
        "",
        f"Default mode: {differing} of {total} texts differ between concurrency {few} and {many}.",
    ]
    return "\n".join(parts)


def _row(cell: dict[str, Any]) -> tuple[str, ...]:
    return (
        cell["policy"],
        cell["how"],
        f"{cell['requests_per_s']:.2f}",
        f"{cell['rows_per_s']:.0f}",
        f"{cell['rows_per_request']:.1f}",
        f"{cell['times_sequential']:.2f}",
        "" if cell["outside_model"] is None else f"{cell['outside_model']:.0%}",
        f"{cell['share_of_peak_flops']:.0%}" if "share_of_peak_flops" in cell else "",
    )
