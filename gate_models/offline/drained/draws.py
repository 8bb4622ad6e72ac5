"""The requests that a pooled threshold is measured on: prompts of every task, each in a setting drawn at random.

A full cross of weights, temperatures, canvases, steps, blocks and orders would take days. Drawing one setting a prompt
covers all of them in minutes: the pooled loss is the mean over the draws, and each value of each factor has a share of
them to be looked at alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from decoding.constraints import parse
from decoding.gates.builtin import DrainedGate
from decoding.models.protocol import DenoisingModel, ModelSpec
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job, Sampling
from decoding.request.template import Template
from decoding.sampling.block_schedule import moving_block
from decoding.sampling.noise import NoiseKey
from gate_models.offline.benchmarks.splits import SPLIT_SEED, split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.drained.settings import PooledSettings

WEIGHTS: Final = (1.0, 2.0, 4.0)
TEMPERATURES: Final = (0.0, 0.6, 1.0)
CANVASES: Final = (8, 16, 24, 32, 48, 64, 96, 128)
SHORTEST_OF_USUAL: Final = 0.5
"""Of a prompt's usual canvas: on a shorter one no decoder meets the constraint, and none can lose."""
HALF_STEPS: Final = 0.25
"""Share of the draws with half as many steps as positions."""
STREAMED: Final = 0.4
"""Share in the blocks of a streamed answer."""
BOOSTED: Final = 0.25
"""Share whose guidance comes first."""
OWN: Final = 0.5
"""Share of the others whose guidance is the model's own, where it has one (`generation_config.json`)."""
BOOSTED_POLICY: Final = {"order": "guidance_boost", "boost_threshold": 0.8, "guided_width": 8}
NEVER: Final = DrainedGate(0.0)
"""Asked before every step and never below its threshold: the run records what every `drained` gate reads."""


@dataclass(frozen=True)
class Draw:
    """One request to measure. `audit`: its prompt has no say in the choice of the threshold."""

    index: int
    prompt: TaskPrompt
    audit: bool
    guidance_scale: float
    temperature: float
    gen_length: int
    steps: int
    block_length: int | None
    order: str
    plausibility: float | None = None
    template: str | None = None
    """A text with blanks in place of a free canvas."""

    @cached_property
    def family(self) -> str | None:
        """Of the constraint; None where it belongs to no benchmark."""
        return parse(self.prompt.constraint).family

    @property
    def groups(self) -> dict[str, str]:
        """The values of the factors that losses are shown by."""
        return {
            "family": self.family or self.prompt.task,
            "guidance_scale": f"{self.guidance_scale:g}",
            "temperature": f"{self.temperature:g}",
            "gen_length": str(self.gen_length) if self.template is None else "template",
            "steps": "half" if self.template is None and self.steps < self.gen_length else "as positions",
            "blocks": "undivided" if self.block_length is None else "blocks",
            "order": self.order if self.plausibility is None else f"{self.order}, plausibility {self.plausibility:g}",
        }

    def job(self, model: DenoisingModel, seed: int) -> Job:
        """The run that is guided to its end, and recorded."""
        boosted = BOOSTED_POLICY if self.order == BOOSTED_POLICY["order"] else {}
        given: dict[str, Any] = {"guidance_scale": self.guidance_scale, "gate": GateSettings("drained")}
        given |= {"order": self.order, "plausibility": self.plausibility, **boosted}
        if boosted:
            given["guided_width"] = min(int(given["guided_width"]), self.gen_length)
        defaults = model.spec.canvas_defaults(self.gen_length, self.steps)
        job = Job(
            prompt_ids=tuple(model.codec.encode_prompt(self.prompt.text())),
            gen_length=self.gen_length,
            steps=self.steps,
            policy=resolve_policy("handoff", given),
            noise=NoiseKey(seed, purpose="audit", arm=f"pooled|{self.prompt.id}", rollout=self.index),
            gate=NEVER,
            family=self.family,
            sampling=Sampling(temperature=self.temperature, defer_eos=self.block_length is None and defaults.defer_eos),
            block_length=self.block_length,
            purpose="audit",
        )
        if self.template is None:
            return job
        canvas = Template.parse(self.template).canvas(model.codec, model.spec)
        return replace(
            job,
            template=canvas,
            gen_length=len(canvas.ids),
            sampling=replace(job.sampling, suppress_eos=True, defer_eos=False),
        )


def draws(spec: ModelSpec, settings: PooledSettings) -> Iterator[Draw]:
    """The requests, in an order that only the seed and the settings decide. Raises `ValueError` for an unknown task."""
    tasks = {task: _shuffled(task, settings.seed) for task in expand(settings.tasks)}
    names = list(tasks)
    for index in range(settings.pairs):
        prompts = tasks[names[index % len(names)]]
        prompt = prompts[(index // len(names)) % len(prompts)]
        yield _draw(index, prompt, spec, np.random.default_rng((settings.seed, index)))


def _shuffled(task: str, seed: int) -> Sequence[TaskPrompt]:
    prompts = load_task(task)
    order = np.random.default_rng(seed).permutation(len(prompts))
    return [prompts[at] for at in order]


def _draw(index: int, prompt: TaskPrompt, spec: ModelSpec, rng: np.random.Generator) -> Draw:
    gen_length = _canvas(prompt, spec, rng)
    steps = gen_length // 2 if gen_length >= 16 and rng.random() < HALF_STEPS else gen_length
    streamed = rng.random() < STREAMED
    defaults = spec.canvas_defaults(gen_length, steps)
    drawn = Draw(
        index=index,
        prompt=prompt,
        audit=split_of(SPLIT_SEED, prompt.task, prompt.id) == "audit",
        guidance_scale=float(rng.choice(WEIGHTS)),
        temperature=float(rng.choice(TEMPERATURES)),
        gen_length=gen_length,
        steps=steps,
        block_length=defaults.block_length or (moving_block(gen_length, steps) if streamed else None),
        order="confidence",
    )
    if rng.random() < BOOSTED:
        return replace(drawn, order=str(BOOSTED_POLICY["order"]))
    own = {name: value for name, value in spec.generation.policy.items() if name in ("order", "plausibility")}
    return replace(drawn, **own) if own and rng.random() < OWN else drawn


def _canvas(prompt: TaskPrompt, spec: ModelSpec, rng: np.random.Generator) -> int:
    """A canvas length; a longer one is rarer, so that all lengths together take about as many forward evaluations."""
    shortest = min(SHORTEST_OF_USUAL * prompt.gen_length, spec.max_canvas)
    fitting = np.array([length for length in CANVASES if shortest <= length <= spec.max_canvas] or [spec.max_canvas])
    return int(rng.choice(fitting, p=(1 / fitting) / (1 / fitting).sum()))
