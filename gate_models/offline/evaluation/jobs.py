"""The jobs of an evaluation: one policy on prompts, with the gate that the server would give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from decoding.constraints import parse
from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import GateResolution
from decoding.models.protocol import DenoisingModel
from decoding.request.job import Attempt, Job, Sampling, regime_of
from decoding.sampling.noise import NoiseKey
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.shipped import shipped_gates
from gate_models.gates.sources import RECORDED, needs_family, trained_sources
from gate_models.offline.benchmarks.tasks import TaskPrompt, family_of
from gate_models.offline.evaluation.measured_horizons import Horizons, horizons_in
from gate_models.offline.evaluation.settings import EvaluateSettings
from gate_models.policies.cascade import affordable, attempts_of, resolve_attempt_gates, within_budget
from gate_models.policies.family_gates import evidence, with_gate
from gate_models.policies.names import NamedPolicy


@dataclass(frozen=True, slots=True)
class EvaluationJobs:
    """Makes the jobs of one policy."""

    model: DenoisingModel
    named: NamedPolicy
    settings: EvaluateSettings
    gates: LearnedGates | None
    """None where the policy's name says its gate; of `auto`, those that its attempts may leave open."""
    horizons: Horizons | None

    @staticmethod
    def of(model: DenoisingModel, named: NamedPolicy, settings: EvaluateSettings) -> EvaluationJobs:
        setting = named.policy.gate
        is_open = named.policy.preset == "auto" or needs_family(setting)
        horizons = horizons_in(settings.census) if settings.census and setting.source == RECORDED else None
        return EvaluationJobs(model, named, settings, shipped_gates(model) if is_open else None, horizons)

    def job(self, prompt: TaskPrompt, sample: int) -> Job:
        """The job of one text. Raises `ValueError` where `recorded` is asked for in another setting."""
        job = self._asked(prompt, sample)
        if self.gates is None:
            return job
        if job.policy.preset == "auto":
            return affordable(
                resolve_attempt_gates(replace(job, policy=within_budget(job)), self.gates, self.model.spec.hash)
            )
        return with_gate(job, self._choice(prompt, job).gate or NeverGate())

    def fallback(self, prompts: Sequence[TaskPrompt]) -> dict[str, Any] | None:
        """How many of `prompts` get full CFG for want of a gate, and why the first of them does; None: none does."""
        if self.gates is None or self.named.policy.preset == "auto":
            return None
        choices = [self._choice(prompt, self._asked(prompt, 0)) for prompt in prompts]
        reasons = [choice.fallback_reason or "no gate is available" for choice in choices if choice.gate is None]
        return {"prompts": len(reasons), "reason": reasons[0]} if reasons else None

    def describe(self, prompts: Sequence[TaskPrompt]) -> str:
        """The policy with whatever else decides what is tried: part of a cell's identity."""
        policy = self.named.policy
        if self.horizons is not None:
            jobs = [self.job(prompt, 0) for prompt in prompts]
            return repr((policy, [job.gate.planned_step(job.steps) for job in jobs]))
        if policy.preset == "auto":
            jobs = [self.job(prompt, 0) for prompt in prompts]
            return repr((policy, list(dict.fromkeys(tuple(map(_described, job.attempts)) for job in jobs))))
        if self.gates is not None:
            gates = [self.job(prompt, 0).gate for prompt in prompts]
            return repr((policy, *evidence(policy.gate, gates, self.gates)))
        if self.named.attempts == 1:
            return repr(policy)
        canvases = sorted({(family_of(prompt) or "", prompt.gen_length) for prompt in prompts})
        spec = self.model.spec
        return repr((policy, [attempts_of(self.named, family, spec.hash, length) for family, length in canvases]))

    def _asked(self, prompt: TaskPrompt, sample: int) -> Job:
        """What a request would ask for, its gate open where the name leaves it open."""
        named, settings, spec = self.named, self.settings, self.model.spec
        predicate = parse(prompt.constraint)
        return Job(
            prompt_ids=tuple(self.model.codec.encode_prompt(prompt.text())),
            gen_length=prompt.gen_length,
            steps=prompt.steps,
            policy=named.policy,
            noise=NoiseKey(settings.seed, purpose="generate", arm=prompt.id, rollout=sample),
            gate=named.gate,
            sampling=Sampling(temperature=settings.temperature),
            block_length=settings.block_length,
            family=family_of(prompt),
            constraint=predicate.to_spec(),
            predicate=predicate,
            attempts=attempts_of(named, family_of(prompt), spec.hash, prompt.gen_length),
        )

    def _choice(self, prompt: TaskPrompt, job: Job) -> GateResolution:
        regime = regime_of(job, self.model.spec.hash)
        if self.horizons is not None:
            return GateResolution(self.horizons[prompt.task, prompt.id].gate(regime))
        if self.gates is None:
            return GateResolution(job.gate)
        return self.gates.resolve(job.policy.gate, regime)


def _described(attempt: Attempt) -> tuple[str, str]:
    """An attempt's policy, and its gate: a learned one by its version, which says what it was trained on."""
    gate = attempt.gate
    return repr(attempt.policy), gate.version if gate.source in trained_sources() else repr(gate)
