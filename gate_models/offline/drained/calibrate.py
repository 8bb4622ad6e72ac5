"""Choose the threshold at which the `drained` gate ends guidance, for each family, commit order and tail width.

One guided run is recorded for each prompt, sample and order. Every threshold is read off its steps, and only the base
tails from the distinct handoff steps are decoded (`gate_audit.sweep`). The loss of a threshold is full CFG's success in
confidence order less the threshold's, averaged over a prompt's samples. Prompts are independent, and none is an audit
prompt.

There are two readings. The *point estimate* is the largest threshold whose mean loss is at most `MARGIN`. Smaller
thresholds have no say in it, unlike earlier cuts for `constant`: nearly all of their texts are the same, and in a
guidance-first order more guidance is no safer (full guidance loses there too). It is the default of
`gate.source = "drained"` and promises nothing: its standard error is about .03 on 60 prompts, and it was chosen. The
*certificate* (`gate.margin`) is the largest threshold that a fixed-sequence test accepts (learn then test, from the
smallest threshold upwards, betting bounds, 95 %), at each margin in `MARGINS`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decoding.gates.builtin import DrainedGate
from decoding.gates.protocol import Regime
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.policy.gate import GateSettings
from decoding.request.job import regime_of
from gate_models.gates.calibrated.drained import DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.benchmarks.splits import SPLIT_SEED, split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.census.noninferiority import MARGIN
from gate_models.offline.drained.settings import CalibrationSettings
from gate_models.offline.gate_audit.arms import Arms, arms_at, decided_steps, never_arms
from gate_models.offline.gate_audit.sweep import SweepSettings, SweptRun, run_job, sweep
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.statistics.bootstrap import bootstrap
from gate_models.statistics.fixed_sequence import MARGINS, FixedSequenceTest

THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
WIDTHS: Final = (1, 2, 4, 8)
CONFIDENCE: Final = 0.95
REFERENCE: Final = "confidence"


ORDERS: Final = (REFERENCE, "guidance_boost")


def sweep_settings(settings: CalibrationSettings, order: str) -> SweepSettings:
    """The sweep of one commit order."""
    boosted = order != REFERENCE
    return SweepSettings(
        samples=settings.samples,
        seed=settings.seed,
        guidance_scale=settings.guidance_scale,
        temperature=settings.temperature,
        order=order,
        guided_width=settings.guided_width if boosted else 1,
        boost_threshold=settings.boost_threshold if boosted else None,
        widths=WIDTHS,
        gates=(),
        thresholds=THRESHOLDS,
        wide=False,
        record="commits",
    )


def prompts_of(task: str, count: int | None) -> list[TaskPrompt]:
    """The first `count` prompts of a task that are not in the audit set; all of them where it has fewer, and for None.

    Where a task has several canvases, only the prompts of the commonest: a threshold serves the canvas that it was
    measured on.
    """
    prompts = load_task(task)
    ((canvas, _),) = Counter((prompt.gen_length, prompt.steps) for prompt in prompts).most_common(1)
    fitting = [prompt for prompt in prompts if (prompt.gen_length, prompt.steps) == canvas]
    return [prompt for prompt in fitting if split_of(SPLIT_SEED, task, prompt.id) != "audit"][:count]


def sweep_path(folder: Path, task: str, order: str) -> Path:
    """The file of one task's runs in one order."""
    return folder / f"drained-{task}-{order}.jsonl"


def swept(
    model: DenoisingModel, prompts: Sequence[TaskPrompt], order: str, settings: CalibrationSettings, folder: Path
) -> list[SweptRun]:
    """The runs of one task's prompts in one order; what `folder` holds already is kept."""
    return sweep(model, prompts, sweep_settings(settings, order), sweep_path(folder, prompts[0].task, order))


def held_prompts(folder: Path, task: str, samples: int) -> list[TaskPrompt]:
    """The prompts of a task that `folder` has every run of, in both orders. Raises `ValueError` where there is none."""
    whole: list[set[str]] = []
    for order in ORDERS:
        path = sweep_path(folder, task, order)
        lines = path.read_text(encoding="utf-8").split("\n")[1:-1] if path.is_file() else []
        counted = Counter(json.loads(line)["prompt"] for line in lines)
        whole.append({prompt for prompt, count in counted.items() if count >= samples})
    held = [prompt for prompt in prompts_of(task, None) if prompt.id in whole[0] & whole[1]]
    if not held:
        raise ValueError(f"{folder} holds no prompt of task '{task}' in both orders")
    return held


def calibrate(model: DenoisingModel, settings: CalibrationSettings, folder: Path) -> list[DrainedThreshold]:
    """One threshold for each family, order and tail width."""
    thresholds, fluency = [], Fluency(load_judge())
    for task in settings.tasks:
        held = settings.prompts is None
        prompts = held_prompts(folder, task, settings.samples) if held else prompts_of(task, settings.prompts)
        runs = {order: swept(model, prompts, order, settings, folder) for order in ORDERS}
        full = never_arms(runs[REFERENCE], 1)
        for order in ORDERS:
            job = run_job(model, runs[order][0].prompt, 0, sweep_settings(settings, order))
            regime = regime_of(replace(job, policy=replace(job.policy, gate=GateSettings("drained"))), model.spec.hash)
            regimes = [replace(regime, tail_width=width) for width in WIDTHS]
            thresholds += [_threshold(runs[order], full, one, settings, task, fluency) for one in regimes]
    return thresholds


def _threshold(
    runs: Sequence[SweptRun], full: Arms, regime: Regime, settings: CalibrationSettings, task: str, fluency: Fluency
) -> DrainedThreshold:
    arms = {
        theta: arms_at(runs, "drained", regime.tail_width, decided_steps(runs, DrainedGate(theta), regime))
        for theta in THRESHOLDS
    }
    losses = {theta: full.by_prompt(full.success - arm.success) for theta, arm in arms.items()}
    threshold = largest_within({theta: float(loss.mean()) for theta, loss in losses.items()}, MARGIN)
    evidence = {
        "task": task,
        "prompts": len({run.prompt.id for run in runs}),
        "samples": settings.samples,
        "seed": settings.seed,
        "margin": MARGIN,
        "judge": fluency.judge.name,
        "full_cfg": _texts(full, fluency),
        "curve": {f"{theta:g}": _point(arms[theta], losses[theta], full, fluency) for theta in THRESHOLDS},
    }
    return DrainedThreshold(regime, threshold, certified(losses), evidence)


def _texts(arms: Arms, fluency: Fluency) -> dict[str, Any]:
    perplexity = fluency.perplexity(arms.texts)
    return {
        "success": _rounded(arms.success.mean()),
        "rows": _rounded(arms.rows.mean()),
        "repeats": _rounded(arms.repeats.mean()),
        "perplexity": None if perplexity is None else round(perplexity, 1),
    }


def _point(arms: Arms, losses: NDArray[np.float64], full: Arms, fluency: Fluency) -> dict[str, Any]:
    loss = bootstrap(losses)
    return {
        **_texts(arms, fluency),
        "loss": _rounded(loss.value),
        "loss_interval_95": [_rounded(loss.low), _rounded(loss.high)],
        "handed_off": _rounded((arms.step < full.step).mean()),
    }


def _rounded(value: float) -> float:
    return round(float(value), 4)


def largest_within(losses: Mapping[float, float], margin: float) -> float | None:
    """The largest threshold that loses at most `margin`: it ends guidance earliest. None where every one loses more."""
    return max((theta for theta, loss in losses.items() if loss <= margin + 1e-12), default=None)


def certified(losses: Mapping[float, NDArray[np.float64]]) -> dict[str, float | None]:
    """By margin: the largest threshold whose loss is below it with 95 % confidence, smaller ones tested first."""
    test = FixedSequenceTest.calibrate([((theta, 0.0), losses[theta]) for theta in sorted(losses)])
    chosen = {margin: test.choose(margin, CONFIDENCE).setting for margin in MARGINS}
    return {f"{margin:g}": None if setting is None else setting[0] for margin, setting in chosen.items()}


def beside(thresholds: Sequence[DrainedThreshold], path: Path) -> list[DrainedThreshold]:
    """`thresholds`, behind those of other regimes that `path` holds already."""
    earlier = read_thresholds(path) if path.is_file() else []
    fresh = {one.regime for one in thresholds}
    return [*(one for one in earlier if one.regime not in fresh), *thresholds]


def run(
    settings: CalibrationSettings, sweeps: Path, out: Path | None = None, *, model: str = "mini", threads: int = 1
) -> list[DrainedThreshold]:
    """Decode into the folder `sweeps` what it lacks, then write the thresholds into `out` beside what it has.

    Without `out` runs are only decoded. Raises `ValueError` where nothing is to be decoded and none is to be written.
    """
    if settings.prompts is None and out is None:
        raise ValueError("the prompts whose runs are there need no decoding; name a file to write too")
    settings = replace(settings, tasks=expand(settings.tasks))
    with compute_mode(threads):
        loaded = load_model(model)
        if out is None:
            for task in settings.tasks:
                for order in ORDERS:
                    swept(loaded, prompts_of(task, settings.prompts), order, settings, sweeps)
            return []
        thresholds = calibrate(loaded, settings, sweeps)
    write_thresholds(beside(thresholds, out), out)
    return thresholds
