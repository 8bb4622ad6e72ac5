"""`astargate evaluate`: success, accepted texts, repeats, length, diversity, rows and seconds of policies on tasks.

Runs in one thread of control (the engine is stepped here), so that a seed gives the same texts on the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.sampling.commit_order import guidance_first_orders
from gate_models.offline.benchmarks.splits import SPLIT_SEED, split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.evaluation.jobs import EvaluationJobs
from gate_models.offline.evaluation.measured_horizons import check_recorded
from gate_models.offline.evaluation.readability import Readability
from gate_models.offline.evaluation.settings import ABLATIONS, EvaluateSettings
from gate_models.offline.runs.result_file import ResultFile, identity, summarise, table
from gate_models.offline.runs.versions import header, software
from gate_models.offline.scorers.fluency import fluency, load_judge
from gate_models.policies.names import NamedPolicy, at_weight, parse_policy

__all__ = ["EvaluateSettings", "EvaluatedSample", "decode", "named_policies", "run", "summarise", "table"]


@dataclass(frozen=True, slots=True)
class EvaluatedSample:
    """One decoded text and its verdict."""

    prompt_id: str
    sample: int
    text: str
    satisfied: bool
    score: float
    rows: int
    full_cfg_equivalent: int
    tokens: int
    """Tokens through the model, padding aside."""
    handoff_fraction: float | None
    history: tuple[tuple[int, bool, str], ...] = ()
    """Every text judged on the way (first passes and repair rounds): rows until then, whether it satisfied, itself."""


def decode(
    model: DenoisingModel, named: NamedPolicy, prompts: Sequence[TaskPrompt], settings: EvaluateSettings, label: str
) -> tuple[list[EvaluatedSample], float]:
    """Samples of every prompt under a policy, and the seconds that they took."""
    runner = Runner(model, invariant=settings.invariant)
    engine = Engine(model, runner=runner, scheduler=Scheduler(max_rows=settings.max_rows, max_queued_rows=2**62))
    jobs = EvaluationJobs.of(model, named, settings)
    pending: list[tuple[TaskPrompt, int, Handle]] = [
        (prompt, sample, engine.submit(jobs.job(prompt, sample)))
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


def _sample(model: DenoisingModel, prompt: TaskPrompt, sample: int, handle: Handle) -> EvaluatedSample:
    outcome = handle.result()
    text = model.codec.decode(list(outcome.content))
    verdict = parse(prompt.constraint).evaluate(text)
    step = outcome.handoff_step
    return EvaluatedSample(
        prompt_id=prompt.id,
        sample=sample,
        text=text,
        satisfied=verdict.satisfied,
        score=verdict.score,
        rows=outcome.ledger.total,
        full_cfg_equivalent=handle.job.full_cfg_equivalent,
        tokens=outcome.ledger.tokens,
        handoff_fraction=None if step is None else step / handle.job.steps,
        history=tuple((attempt.rows, attempt.satisfied, attempt.text) for attempt in outcome.passes),
    )


def named_policies(settings: EvaluateSettings) -> list[NamedPolicy]:
    """The policies of a run: each name, at each weight where weights are swept; each once.

    At weight 0 a policy is the base decoder with its tail, and is named so.
    """
    if settings.weights:
        named = [at_weight(name, weight) for name in settings.policies for weight in settings.weights]
    else:
        named = [parse_policy(name) for name in settings.policies]
    return list({policy.name: policy for policy in named}.values())


def run(settings: EvaluateSettings, out: Path | None = None) -> dict[str, Any]:
    """Evaluate every policy on every task; print tables; return the result.

    With `out`, the result is written there after every policy of every task, and a run that finds cells of the same
    model, versions, prompts and settings there goes on after them. Other cells there are kept where the file's header
    stays true of them, and dropped where it does not.
    """
    policies = named_policies(settings)
    loaded = {task: prompts_of(task, settings) for task in expand(settings.tasks)}
    check_recorded(policies, settings.census, loaded)
    with compute_mode(settings.threads):
        return _run(settings, policies, loaded, out)


def prompts_of(task: str, settings: EvaluateSettings) -> list[TaskPrompt]:
    """The prompts of a task that a run decodes. Raises `ValueError` where there is none."""
    prompts = load_task(task, settings.n)
    if settings.splits:
        prompts = [p for p in prompts if split_of(SPLIT_SEED, p.task, p.id) in settings.splits]
    if settings.canvas is not None:
        prompts = [replace(p, gen_length=settings.canvas, steps=settings.canvas) for p in prompts]
    if not prompts:
        raise ValueError(f"task {task!r} has no prompt in {', '.join(settings.splits)} among its first {settings.n}")
    return prompts


def _run(
    settings: EvaluateSettings,
    policies: Sequence[NamedPolicy],
    loaded: dict[str, list[TaskPrompt]],
    out: Path | None,
) -> dict[str, Any]:
    ngrams = load_judge(settings.fluency_model, settings.device)
    cache = None if settings.judge_cache is None else Path(settings.judge_cache)
    readability = Readability.load(settings.judge, cache)
    people = None if readability is None else readability.people()
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    for name in settings.without:
        model.spec = replace(model.spec, **ABLATIONS[name])
    asked = {
        task: {named.name: _identity(model, named, prompts, settings) for named in policies}
        for task, prompts in loaded.items()
    }
    results = ResultFile(out, {"seed": settings.seed, **header(model.spec, settings)}, asked)
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    number, cells = 0, len(loaded) * len(policies)
    for task, prompts in loaded.items():
        tables[task] = {}
        for named in policies:
            number += 1
            digest = asked[task][named.name]
            finished = results.find(task, named.name, digest)
            if finished is None:
                label = f"[{number}/{cells}] {task} {named.name}"
                decoded, seconds = decode(model, named, prompts, settings, label)
                finished = [asdict(sample) for sample in decoded], seconds
            samples, seconds = finished
            row = summarise(samples, seconds) | {"fluency": fluency(ngrams, [sample["text"] for sample in samples])}
            row |= {} if readability is None else readability.figures(samples)
            fallen = EvaluationJobs.of(model, named, settings).fallback(prompts)
            row |= {} if fallen is None else {"fallback": fallen}
            tables[task][named.name] = row
            results.put(task, named.name, digest, row, samples)
        print(table(task, tables[task], people))
    if readability is not None:
        results.content["judge"] = {"made_from": readability.judge.facts, "texts_by_people": people}
        results.write()
    if len(loaded) == 1:
        results.content["policies"] = next(iter(tables.values()))
        results.write()
    return results.content


def _identity(
    model: DenoisingModel, named: NamedPolicy, prompts: Sequence[TaskPrompt], settings: EvaluateSettings
) -> str:
    """What the texts of a cell depend on."""
    no_part = {"tasks", "policies", "weights", "n", "splits", "canvas", "model", "threads", "fluency_model", "census"}
    no_part |= {"judge", "judge_cache"}
    kept = {name: value for name, value in asdict(settings).items() if name not in no_part}
    if not settings.without:  # the rule, and what every result before the option had
        del kept["without"]
    if named.policy.order in guidance_first_orders() or named.policy.preset == "auto":
        kept["text_margins"] = model.spec.text_margins
    shown = [asdict(prompt) for prompt in prompts]
    return identity(
        model=f"{model.spec.hash} {model.spec.precision}",
        policy=EvaluationJobs.of(model, named, settings).describe(prompts),
        prompts=shown,
        settings=kept,
        software=software(),
    )
