"""Runs that branch at every step where a gate might end guidance: each gate of an audit is read off them (Appendix H).

Per prompt and sample one guided run is recorded; every gate and tail width branches off its states, so that gates and
widths are paired within the run. Full CFG of several positions a step from the first step on stands beside it. Texts
are kept (fluency), and the trace (any causal gate can be asked again without decoding). One JSON line a (prompt,
sample): a sweep that was stopped goes on where it stood; one of other settings is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.rollouts import continuations
from decoding.engine.scheduler import Scheduler
from decoding.gates.builtin import DrainedGate
from decoding.gates.protocol import Regime
from decoding.models.protocol import DenoisingModel
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.records.trace import Trace
from decoding.request.job import Anchor, Job, RecordLevel, Sampling, regime_of
from decoding.sampling.block_schedule import step_at
from decoding.sampling.noise import NoiseKey
from gate_models.committor.choices import FREEZE_GRID
from gate_models.features.prefix import view_before
from gate_models.offline.benchmarks.tasks import TaskPrompt, family_of
from gate_models.offline.gate_audit.settings import WIDTHS
from gate_models.offline.runs.result_file import identity
from gate_models.offline.runs.trace_codec import decode_trace, encode_trace
from gate_models.offline.runs.versions import software

GATES: Final = tuple(gate / 10 for gate in range(10))
_POLICY: Final = ("guidance_scale", "order", "guided_width", "boost_threshold")
"""Settings that are fields of the policy."""
CHUNK: Final = 4
"""Runs that are decoded, judged and written together."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """What a sweep is decoded with."""

    samples: int = 2
    seed: int = 1000
    guidance_scale: float = 2.0
    temperature: float = 1.0
    order: str = "confidence"
    guided_width: int = 1
    boost_threshold: float | None = None
    widths: tuple[int, ...] = WIDTHS
    gates: tuple[float, ...] = tuple(sorted({*GATES, *FREEZE_GRID}))
    """Fractions of the steps at which every run branches."""
    thresholds: tuple[float, ...] = ()
    """Total variations at which a `drained` gate hands off: each run branches where it would."""
    wide: bool = True
    """Whether full CFG of every width above 1 is decoded beside the runs."""
    record: RecordLevel = "fill"
    """What the recorded runs keep of a step; `drained` needs the commits alone."""


@dataclass(frozen=True, slots=True)
class Text:
    """One finished text."""

    success: bool
    text: str
    rows: int


@dataclass(frozen=True, slots=True)
class SweptRun:
    """One recorded guided run with all its branches."""

    prompt: TaskPrompt
    sample: int
    prompt_tokens: int
    guided: Text
    trace: Trace
    branches: dict[tuple[int, int], Text]
    """By (tail width, handoff step)."""
    wide: dict[int, Text]
    """Full CFG by guided width above 1."""


def sweep_steps(settings: SweepSettings, steps: int) -> tuple[int, ...]:
    """The handoff steps that all runs of a sweep share, merged where gates fall on one step."""
    return tuple(sorted({step for gate in settings.gates if (step := step_at(gate, steps)) < steps}))


def drained_step(trace: Trace, gate: DrainedGate, regime: Regime) -> int:
    """The step before which a `drained` gate ends the guidance of a recorded run; its end where never.

    One guided run serves every threshold: the gate reads what each step recorded.
    """
    views = (view_before(step, trace.steps, regime, 0, {}) for step in range(1, len(trace.steps)))
    return next((view.step for view in views if gate.decide([view])[0].handoff), len(trace.steps))


def sweep(model: DenoisingModel, prompts: Sequence[TaskPrompt], settings: SweepSettings, path: Path) -> list[SweptRun]:
    """Run what `path` lacks, append it there, and return all runs in order of (prompt, sample).

    Raises `ValueError` where `path` holds a sweep of other settings.
    """
    header = {"sweep": identity(model=model.spec.hash, settings=asdict(settings), software=software())}
    runs = _read(path, header, prompts)
    wanted = [(prompt, sample) for prompt in prompts for sample in range(settings.samples)]
    missing = [(prompt, sample) for prompt, sample in wanted if (prompt.id, sample) not in runs]
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file, tqdm(total=len(missing), unit="run", desc="sweep") as bar:
            if file.tell() == 0:
                file.write(json.dumps(header) + "\n")
            for start in range(0, len(missing), CHUNK):
                for run in _runs(model, missing[start : start + CHUNK], settings):
                    file.write(json.dumps(_row(run)) + "\n")
                    runs[run.prompt.id, run.sample] = run
                    bar.update()
                file.flush()
    return [runs[prompt.id, sample] for prompt, sample in wanted]


def _runs(
    model: DenoisingModel, wanted: Sequence[tuple[TaskPrompt, int]], settings: SweepSettings
) -> Iterator[SweptRun]:
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=2**62))
    recorded = engine.submit_all([run_job(model, prompt, sample, settings) for prompt, sample in wanted])
    wide = [engine.submit_all(_wide(model, *one, settings)) for one in wanted]
    while engine.step():
        pass
    branches: list[dict[tuple[int, int], Handle]] = []
    for (prompt, sample), handle in zip(wanted, recorded, strict=True):
        outcome, branch = handle.result(), {}
        regime = regime_of(handle.job, model.spec.hash)
        drained = {drained_step(outcome.trace, DrainedGate(threshold), regime) for threshold in settings.thresholds}
        for step in sorted({*sweep_steps(settings, prompt.steps), *drained}):
            if step >= len(outcome.trace.steps):
                continue
            canvas = outcome.trace.prefix(step, model.spec.mask_id).tolist()
            for width in _fitting(settings.widths, prompt):
                arm = f"audit|{prompt.id}|{sample}|k{width}|s{step}"
                (job,) = continuations(
                    replace(handle.job, record="commits"),
                    Anchor(tuple(canvas), step, outcome.trace.place(step)),
                    guided=False,
                    count=1,
                    arm=arm,
                    tail_width=width,
                    purpose="audit",
                )
                branch[width, step] = engine.submit(job)
        branches.append(branch)
    while engine.step():
        pass
    for (prompt, sample), handle, tails, others in zip(wanted, recorded, branches, wide, strict=True):
        done = {key: _text(model, prompt, tail) for key, tail in tails.items()}
        yield SweptRun(
            prompt=prompt,
            sample=sample,
            prompt_tokens=len(handle.job.prompt_ids),
            guided=_text(model, prompt, handle),
            trace=handle.result().trace,
            branches={
                key: replace(text, rows=text.rows + 2 * key[1]) for key, text in done.items()
            },  # the shared prefix is charged to every branch
            wide={other.job.policy.guided_width: _text(model, prompt, other) for other in others},
        )


def _fitting(widths: Sequence[int], prompt: TaskPrompt) -> list[int]:
    return [width for width in widths if width <= prompt.gen_length]


def run_job(model: DenoisingModel, prompt: TaskPrompt, sample: int, settings: SweepSettings) -> Job:
    """The guided run that is recorded and branched off."""
    given: dict[str, Any] = {name: getattr(settings, name) for name in _POLICY}
    return Job(
        prompt_ids=tuple(model.codec.encode_prompt(prompt.text())),
        gen_length=prompt.gen_length,
        steps=prompt.steps,
        policy=resolve_policy("handoff", given | {"gate": GateSettings("never")}),
        noise=NoiseKey(settings.seed, purpose="audit", arm=f"audit|{prompt.id}", rollout=sample),
        family=family_of(prompt),
        sampling=Sampling(temperature=settings.temperature),
        purpose="audit",
        record=settings.record,
    )


def _wide(model: DenoisingModel, prompt: TaskPrompt, sample: int, settings: SweepSettings) -> list[Job]:
    """Full CFG of several positions a step."""
    plain = replace(run_job(model, prompt, sample, settings), record="commits")
    widths = [width for width in _fitting(settings.widths, prompt) if width > 1 and settings.wide]
    return [
        replace(
            plain,
            policy=replace(plain.policy, guided_width=width),
            noise=replace(plain.noise, arm=f"audit|wide{width}|{prompt.id}"),
        )
        for width in widths
    ]


def _text(model: DenoisingModel, prompt: TaskPrompt, handle: Handle) -> Text:
    outcome = handle.result()
    text = model.codec.decode(list(outcome.content))
    return Text(parse(prompt.constraint).evaluate(text).satisfied, text, outcome.ledger.total)


def _row(run: SweptRun) -> dict[str, Any]:
    return {
        "prompt": run.prompt.id,
        "sample": run.sample,
        "prompt_tokens": run.prompt_tokens,
        "guided": list(asdict(run.guided).values()),
        "trace": encode_trace(run.trace).decode(),
        "branches": [[*key, *asdict(text).values()] for key, text in run.branches.items()],
        "wide": [[width, *asdict(text).values()] for width, text in run.wide.items()],
    }


def _read(path: Path, header: dict[str, str], prompts: Sequence[TaskPrompt]) -> dict[tuple[str, int], SweptRun]:
    """The runs of an earlier sweep; a last line that was cut off is dropped from the file."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines), encoding="utf-8")
    if not lines:
        return {}
    if json.loads(lines[0]) != header:
        raise ValueError(f"{path} holds a sweep of another model or other settings; give another --out, or remove it")
    known = {prompt.id: prompt for prompt in prompts}
    rows = [json.loads(line) for line in lines[1:]]
    return {(row["prompt"], row["sample"]): _run(row, known[row["prompt"]]) for row in rows if row["prompt"] in known}


def _run(row: dict[str, Any], prompt: TaskPrompt) -> SweptRun:
    return SweptRun(
        prompt=prompt,
        sample=row["sample"],
        prompt_tokens=row["prompt_tokens"],
        guided=Text(*row["guided"]),
        trace=decode_trace(row["trace"].encode()),
        branches={(width, step): Text(*rest) for width, step, *rest in row["branches"]},
        wide={width: Text(*rest) for width, *rest in row["wide"]},
    )
