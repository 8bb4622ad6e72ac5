"""`astargate evaluate`: success, repeats, length, diversity, rows and seconds of policies on a task.

Runs in one thread of control (the engine is stepped here), so that a seed gives the same texts on the same machine.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine import Engine
from decoding.handle import Handle
from decoding.job import Job, Sampling
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.noise import NoiseKey
from decoding.runner import Runner
from decoding.scheduler import Scheduler
from gate_models.offline.policy_names import NamedPolicy, parse_policy
from gate_models.offline.tasks import TaskPrompt, load_task
from gate_models.offline.text_metrics import distinct_2, has_adjacent_repeat, wilson, words


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """What an evaluation is made from; written into its result."""

    tasks: tuple[str, ...]
    policies: tuple[str, ...]
    weights: tuple[float, ...] = ()
    """Guidance scales to sweep; empty: each policy's own."""
    n: int | None = None
    samples: int = 1
    seed: int = 0
    temperature: float = 1.0
    model: str = "mini"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    max_rows: int = 64
    invariant: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoded text and its verdict."""

    prompt_id: str
    sample: int
    text: str
    satisfied: bool
    score: float
    rows: int
    full_cfg_equivalent: int
    handoff_fraction: float | None


def decode(
    model: DenoisingModel, named: NamedPolicy, prompts: Sequence[TaskPrompt], settings: EvaluateSettings, label: str
) -> tuple[list[Sample], float]:
    """Samples of every prompt under a policy, and the seconds that they took."""
    runner = Runner(model, invariant=settings.invariant)
    engine = Engine(model, runner=runner, scheduler=Scheduler(max_rows=settings.max_rows, max_queued_rows=2**62))
    pending: list[tuple[TaskPrompt, int, Handle]] = [
        (prompt, sample, engine.submit(_job(model, named, prompt, sample, settings)))
        for prompt in prompts
        for sample in range(settings.samples)
    ]
    began, done = time.monotonic(), 0
    with tqdm(total=len(pending), desc=label, unit="text", mininterval=1.0) as bar:
        while engine.step():
            finished = sum(handle.done for _, _, handle in pending)
            bar.update(finished - done)
            done = finished
    seconds = time.monotonic() - began
    return [_sample(model, *item) for item in pending], seconds


def _job(model: DenoisingModel, named: NamedPolicy, prompt: TaskPrompt, sample: int, settings: EvaluateSettings) -> Job:
    constraint = parse(prompt.constraint)
    text = f"{prompt.prompt} {constraint.instruction()}"
    return Job(
        prompt_ids=tuple(model.codec.encode_prompt(text)),
        gen_length=prompt.gen_length,
        steps=prompt.steps,
        policy=named.policy,
        noise=NoiseKey(settings.seed, purpose="generate", arm=prompt.id, rollout=sample),
        gate=named.gate,
        sampling=Sampling(temperature=settings.temperature),
        family=constraint.family,
    )


def _sample(model: DenoisingModel, prompt: TaskPrompt, sample: int, handle: Handle) -> Sample:
    outcome = handle.result()
    text = model.codec.decode(list(outcome.content))
    verdict = parse(prompt.constraint).evaluate(text)
    step = outcome.handoff_step
    return Sample(
        prompt_id=prompt.id,
        sample=sample,
        text=text,
        satisfied=verdict.satisfied,
        score=verdict.score,
        rows=outcome.ledger.total,
        full_cfg_equivalent=handle.job.full_cfg_equivalent,
        handoff_fraction=None if step is None else step / handle.job.steps,
    )


def summarise(samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """The row of a table: one policy on one task."""
    texts = [sample.text for sample in samples]
    successes, count = sum(sample.satisfied for sample in samples), len(samples)
    low, high = wilson(successes, count)
    return {
        "success": successes / count,
        "success_interval_95": [low, high],
        "score": sum(sample.score for sample in samples) / count,
        "adjacent_repeat_rate": sum(map(has_adjacent_repeat, texts)) / count,
        "mean_words": sum(len(words(text)) for text in texts) / count,
        "distinct_2": distinct_2(texts),
        "rows_per_sample": sum(sample.rows for sample in samples) / count,
        "full_cfg_equivalent": sum(sample.full_cfg_equivalent for sample in samples) / count,
        "seconds": seconds,
        "seconds_per_sample": seconds / count,
        "samples": count,
    }


def named_policies(settings: EvaluateSettings) -> list[NamedPolicy]:
    """The policies of a run: each name, at each weight where weights are swept (the base decoder once)."""
    if not settings.weights:
        return [parse_policy(name) for name in settings.policies]
    named: dict[str, NamedPolicy] = {}
    for name in settings.policies:
        for weight in settings.weights:
            if weight == 0.0 or name.split(":")[0] == "base":
                named.setdefault("base", parse_policy("base"))
            else:
                label = f"{name}:w{weight:g}"
                named[label] = parse_policy(label)
    return list(named.values())


def versions(model: DenoisingModel, settings: EvaluateSettings) -> dict[str, Any]:
    """What a result must name to be made again."""
    try:
        own = version("astargate")
    except PackageNotFoundError:
        own = "source tree"
    return {
        "model": model.spec.name,
        "model_hash": model.spec.hash,
        "versions": {"astargate": own, "torch": torch.__version__, "python": platform.python_version()},
        "machine": platform.processor() or platform.machine(),
        "settings": asdict(settings),
    }


def run(settings: EvaluateSettings, out: Path | None = None) -> dict[str, Any]:
    """Evaluate every policy on every task; print tables; return (and write to `out`) the result."""
    policies = named_policies(settings)
    loaded = {task: load_task(task, settings.n) for task in settings.tasks}
    torch.set_num_threads(settings.threads)
    torch.set_flush_denormal(True)
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    result: dict[str, Any] = {"seed": settings.seed, **versions(model, settings), "tasks": {}}
    for task, prompts in loaded.items():
        rows, texts = {}, {}
        for named in policies:
            samples, seconds = decode(model, named, prompts, settings, f"{task} {named.name}")
            rows[named.name] = summarise(samples, seconds)
            texts[named.name] = [asdict(sample) for sample in samples]
        result["tasks"][task] = {"policies": rows, "samples": texts}
        print(table(task, rows))
    if len(loaded) == 1:
        result["policies"] = next(iter(result["tasks"].values()))["policies"]
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def table(task: str, rows: dict[str, dict[str, Any]]) -> str:
    """A Markdown table of one task."""
    lines = [
        f"\n{task}\n",
        "| policy | success | 95 % | adjacent repeats | words | distinct-2 | rows / text | of full CFG | s / text |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        low, high = row["success_interval_95"]
        share = row["rows_per_sample"] / row["full_cfg_equivalent"]
        lines.append(
            f"| {name} | {row['success']:.3f} | {low:.2f}-{high:.2f} | {row['adjacent_repeat_rate']:.2f} "
            f"| {row['mean_words']:.1f} | {row['distinct_2']:.2f} | {row['rows_per_sample']:.1f} | {share:.0%} "
            f"| {row['seconds_per_sample']:.3f} |"
        )
    return "\n".join(lines)
