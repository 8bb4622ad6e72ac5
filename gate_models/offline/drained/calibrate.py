"""Calibrate the threshold of the `drained` gate for each family, commit order and tail width.

One guided run a (prompt, sample, order) is recorded; every threshold is read off its steps (`gate_sweep`), and only
the base tails from the distinct handoff steps are decoded. The loss of a threshold is full CFG's success in confidence
order less its own, averaged over a prompt's samples; prompts are independent, and none is an audit prompt.

Two readings. *Point estimate*: the largest threshold whose mean loss is at most `MARGIN`. Smaller thresholds have no
say in it, unlike earlier cuts for `constant`: most of their texts are the same, and in a guidance-first order more
guidance is no safer (its full guidance loses too). It is the default of `gate.source = "drained"` and promises nothing:
its standard error is about .03 on 60 prompts, and it was chosen. *Certificate* (`gate.margin`): fixed-sequence
learn-then-test from the smallest threshold upwards with betting bounds, 95 %, at each margin of the ladder's table.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from gate_models.gates.drained import DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.census.noninferiority import MARGIN
from gate_models.offline.gate_audit.arms import Arms, arms_at, decided_steps, never_arms
from gate_models.offline.gate_audit.sweep import SweepSettings, SweptRun, run_job, sweep
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.statistics.bootstrap import bootstrap
from gate_models.statistics.fixed_sequence import MARGINS, FixedSequenceTest

THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
WIDTHS: Final = (1, 2, 4, 8)
CONFIDENCE: Final = 0.95
REFERENCE: Final = "confidence"
SPLIT_SEED: Final = 0
"""Of the prompt sets: that of the census behind the learned gates."""


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What is calibrated, and on how much."""

    tasks: tuple[str, ...]
    prompts: int | None = 100
    """Prompts a task outside the audit set, the first of them; None: those whose runs are there, nothing is decoded."""
    samples: int = 1
    seed: int = 5000
    guidance_scale: float = 2.0
    temperature: float = 1.0
    boost_threshold: float = 0.8
    guided_width: int = 8
    """At most so many positions a guided step of the boosted order."""

    def settings(self, order: str) -> SweepSettings:
        """The sweep of one commit order."""
        boosted = order != REFERENCE
        return SweepSettings(
            samples=self.samples,
            seed=self.seed,
            guidance_scale=self.guidance_scale,
            temperature=self.temperature,
            order=order,
            guided_width=self.guided_width if boosted else 1,
            boost_threshold=self.boost_threshold if boosted else None,
            widths=WIDTHS,
            gates=(),
            thresholds=THRESHOLDS,
            wide=False,
            record="commits",
        )


ORDERS: Final = (REFERENCE, "guidance_boost")


def prompts_of(task: str, count: int | None) -> list[TaskPrompt]:
    """The first `count` prompts of a task that are not in the audit set (all there are where it has fewer; None).

    Of a task with several canvases those of the commonest alone: a threshold serves the canvas that it was measured on.
    """
    prompts = load_task(task)
    ((canvas, _),) = Counter((prompt.gen_length, prompt.steps) for prompt in prompts).most_common(1)
    own = [prompt for prompt in prompts if (prompt.gen_length, prompt.steps) == canvas]
    return [prompt for prompt in own if split_of(SPLIT_SEED, task, prompt.id) != "audit"][:count]


def sweep_path(folder: Path, task: str, order: str) -> Path:
    """The file of one task's runs in one order."""
    return folder / f"drained-{task}-{order}.jsonl"


def swept(
    model: DenoisingModel, prompts: Sequence[TaskPrompt], order: str, plan: CalibrationPlan, folder: Path
) -> list[SweptRun]:
    """The runs of one task's prompts in one order; what `folder` holds already is kept."""
    return sweep(model, prompts, plan.settings(order), sweep_path(folder, prompts[0].task, order))


def held_prompts(folder: Path, task: str, samples: int) -> list[TaskPrompt]:
    """The prompts of a task that `folder` has every run of, in both orders. Raises `ValueError` where there is none."""
    whole: list[set[str]] = []
    for order in ORDERS:
        path = sweep_path(folder, task, order)
        lines = path.read_text(encoding="utf-8").split("\n")[1:-1] if path.is_file() else []
        counted = Counter(json.loads(line)["prompt"] for line in lines)
        whole.append({prompt for prompt, count in counted.items() if count >= samples})
    found = [prompt for prompt in prompts_of(task, None) if prompt.id in whole[0] & whole[1]]
    if not found:
        raise ValueError(f"{folder} holds no prompt of task '{task}' in both orders")
    return found


def calibrate(model: DenoisingModel, plan: CalibrationPlan, folder: Path) -> list[DrainedThreshold]:
    """One threshold for each family, order and tail width."""
    found, fluency = [], Fluency(load_judge())
    for task in plan.tasks:
        prompts = held_prompts(folder, task, plan.samples) if plan.prompts is None else prompts_of(task, plan.prompts)
        runs = {order: swept(model, prompts, order, plan, folder) for order in ORDERS}
        full = never_arms(runs[REFERENCE], 1)
        for order in ORDERS:
            job = run_job(model, runs[order][0].prompt, 0, plan.settings(order))
            regime = regime_of(replace(job, policy=replace(job.policy, gate=GateSettings("drained"))), model.spec.hash)
            regimes = [replace(regime, tail_width=width) for width in WIDTHS]
            found += [_threshold(runs[order], full, own, plan, task, fluency) for own in regimes]
    return found


def _threshold(
    runs: Sequence[SweptRun], full: Arms, regime: Regime, plan: CalibrationPlan, task: str, fluency: Fluency
) -> DrainedThreshold:
    arms = {
        theta: arms_at(runs, "drained", regime.tail_width, decided_steps(runs, DrainedGate(theta), regime))
        for theta in THRESHOLDS
    }
    losses = {theta: full.by_prompt(full.success - own.success) for theta, own in arms.items()}
    threshold = largest_within({theta: float(loss.mean()) for theta, loss in losses.items()}, MARGIN)
    evidence = {
        "task": task,
        "prompts": len({run.prompt.id for run in runs}),
        "samples": plan.samples,
        "seed": plan.seed,
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
    """The largest threshold that loses at most `margin`, which saves most; None where every one loses more."""
    return max((theta for theta, loss in losses.items() if loss <= margin + 1e-12), default=None)


def certified(losses: Mapping[float, NDArray[np.float64]]) -> dict[str, float | None]:
    """By margin: the largest threshold whose loss is below it with 95 % confidence, smaller ones tested first."""
    ladder = FixedSequenceTest.calibrate([((theta, 0.0), losses[theta]) for theta in sorted(losses)])
    chosen = {margin: ladder.choose(margin, CONFIDENCE).setting for margin in MARGINS}
    return {f"{margin:g}": None if setting is None else setting[0] for margin, setting in chosen.items()}


def beside(found: Sequence[DrainedThreshold], path: Path) -> list[DrainedThreshold]:
    """`found`, behind the thresholds of other regimes that `path` holds already."""
    earlier = read_thresholds(path) if path.is_file() else []
    fresh = {one.regime for one in found}
    return [*(one for one in earlier if one.regime not in fresh), *found]


def main() -> None:
    """Command line."""
    own = CalibrationPlan(())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--prompts", type=int, default=100, help="prompts a task outside the audit set")
    parser.add_argument("--held", action="store_true", help="the prompts whose runs are there, whatever their number")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--guidance-scale", type=float, default=own.guidance_scale)
    parser.add_argument("--temperature", type=float, default=own.temperature)
    parser.add_argument("--boost-threshold", type=float, default=own.boost_threshold)
    parser.add_argument("--guided-width", type=int, default=own.guided_width, help="of the boosted order, above 1")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sweeps", type=Path, required=True, help="folder of the decoded runs; a stopped run goes on")
    parser.add_argument("--out", type=Path, help="JSON to write, beside what it has; without it only runs are decoded")
    arguments = parser.parse_args()
    if arguments.held and arguments.out is None:
        parser.error("--held decodes nothing; give --out too")
    prompts = None if arguments.held else arguments.prompts
    plan = CalibrationPlan(
        expand(arguments.tasks.split(",")),
        prompts,
        arguments.samples,
        arguments.seed,
        arguments.guidance_scale,
        arguments.temperature,
        arguments.boost_threshold,
        arguments.guided_width,
    )
    with compute_mode(arguments.threads):
        model = load_model(arguments.model)
        if arguments.out is None:
            for task in plan.tasks:
                for order in ORDERS:
                    swept(model, prompts_of(task, plan.prompts), order, plan, arguments.sweeps)
            return
        found = calibrate(model, plan, arguments.sweeps)
    write_thresholds(beside(found, arguments.out), arguments.out)
    for one in found:
        regime = one.regime
        print(regime.family, regime.order, f"K={regime.tail_width}", one.threshold, one.certified)


if __name__ == "__main__":
    main()
