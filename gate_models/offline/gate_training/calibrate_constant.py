"""`astargate gate constant`: the earliest handoff of each family that keeps full CFG's success from there on.

Per prompt one full guided run is recorded; every cut on the grid continues a replayed prefix of it under the base
decoder, at each tail width that is to be served (so cuts are compared on shared prefixes). The cut of a family is the
earliest grid point such that it and every later one lose at most `margin` of full CFG's success; none: `never`. Point
estimates on calibration prompts, no promise; the audited gates come with the census.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, Final

from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.rollouts import continuations
from decoding.engine.scheduler import Scheduler
from decoding.gates.builtin import FractionGate
from decoding.models.protocol import DenoisingModel
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import Anchor, Job, regime_of
from decoding.sampling.block_schedule import step_at
from decoding.sampling.noise import NoiseKey
from gate_models.gates.calibrated.constant import ConstantCut, earliest_safe
from gate_models.offline.benchmarks.splits import SPLIT_SEED, split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, family_of, load_task
from gate_models.offline.gate_training.settings import ConstantPlan

GRID: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def calibrate(model: DenoisingModel, plan: ConstantPlan) -> list[ConstantCut]:
    """One cut for each family and tail width."""
    cuts = []
    for task in plan.tasks:
        usable = [prompt for prompt in load_task(task) if split_of(SPLIT_SEED, task, prompt.id) != "audit"]
        prompts = usable[plan.skip : plan.skip + plan.prompts]
        if len(prompts) < plan.prompts:
            raise ValueError(
                f"task {task!r} has only {len(prompts)} prompts outside the audit set after the first {plan.skip}"
            )
        full, swept = _sweep(model, prompts, plan)
        for width in plan.widths:
            curve = {cut: swept[width, cut] for cut in GRID}
            evidence = {"full_cfg": full, "success": curve, "prompts": len(prompts), "task": task, "seed": plan.seed}
            job = _job(model, prompts[0], plan, width)
            fraction = earliest_safe(curve, full, plan.margin)
            cuts.append(ConstantCut(regime_of(job, model.spec.hash), fraction, evidence | {"margin": plan.margin}))
    return cuts


def _job(model: DenoisingModel, prompt: TaskPrompt, plan: ConstantPlan, width: int) -> Job:
    given: dict[str, Any] = {
        "guidance_scale": plan.guidance_scale,
        "tail_width": width,
        "gate": GateSettings("constant"),
    }
    return Job(
        prompt_ids=tuple(model.codec.encode_prompt(prompt.text())),
        gen_length=prompt.gen_length,
        steps=prompt.steps,
        policy=resolve_policy("handoff", given),
        noise=NoiseKey(plan.seed, arm=prompt.id),
        family=family_of(prompt),
    )


def _sweep(
    model: DenoisingModel, prompts: list[TaskPrompt], plan: ConstantPlan
) -> tuple[float, dict[tuple[int, float], float]]:
    """Success of full CFG, and of each (tail width, cut) from shared prefixes."""
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=2**62))
    recorded = engine.submit_all([_job(model, prompt, plan, 1) for prompt in prompts])
    _run(engine, f"{prompts[0].task}: full CFG")
    successes: dict[tuple[int, float], list[bool]] = defaultdict(list)
    tails = []
    for prompt, handle in zip(prompts, recorded, strict=True):
        for cut in GRID:
            step = step_at(cut, prompt.steps)
            canvas = handle.result().trace.prefix(step, model.spec.mask_id).tolist()
            for width in plan.widths:
                job = replace(handle.job, gate=FractionGate(cut))
                arm = f"{prompt.id}|k{width}|{cut}"
                tails += [
                    (prompt, width, cut, rollout)
                    for rollout in engine.submit_all(
                        continuations(
                            job,
                            Anchor(tuple(canvas), step),
                            guided=False,
                            count=plan.rollouts,
                            arm=arm,
                            tail_width=width,
                        )
                    )
                ]
    _run(engine, f"{prompts[0].task}: cuts")
    for prompt, width, cut, handle in tails:
        successes[width, cut].append(_satisfied(model, prompt, handle.result().content))
    full = [
        _satisfied(model, prompt, handle.result().content) for prompt, handle in zip(prompts, recorded, strict=True)
    ]
    return sum(full) / len(full), {key: sum(values) / len(values) for key, values in successes.items()}


def _satisfied(model: DenoisingModel, prompt: TaskPrompt, content: tuple[int, ...]) -> bool:
    return parse(prompt.constraint).evaluate(model.codec.decode(list(content))).satisfied


def _run(engine: Engine, label: str) -> None:
    total = engine.scheduler.queued
    with tqdm(total=total, desc=label, unit="text", mininterval=1.0) as bar:
        while engine.step():
            bar.update(total - engine.scheduler.queued - bar.n)
