"""`astargate gate audit`: gates against each other on fresh trajectories of audit prompts, per family and pooled.

Every source is read off one shared-prefix sweep (`gate_audit.sweep`), with prompts as the unit of every interval.
Populations are named. *Intention-to-treat* is every audit prompt: a gate that falls back counts as the full CFG that it
gets. *Survivors* are the prompts whose census run has the handoff fate (a measured horizon). Written to the output
folder: `sweep-<family>.jsonl` (resumable), `audit-<family>.md` and `.png`, `audit.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.learned import artifact
from gate_models.gates.learned.audit_report import POOLED
from gate_models.gates.learned.bundle import GateBundle
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, load_task
from gate_models.offline.census.records import Census
from gate_models.offline.census.store import load_census
from gate_models.offline.gate_audit.accuracy import Accuracy, ablation, cross_validated, leave_one_family_out
from gate_models.offline.gate_audit.arms import ARRAYS, Arms, never_arms
from gate_models.offline.gate_audit.report import accuracy_table, plot, source_table
from gate_models.offline.gate_audit.results import results
from gate_models.offline.gate_audit.settings import AuditSettings
from gate_models.offline.gate_audit.sources import all_arms
from gate_models.offline.gate_audit.sweep import SweepSettings, SweptRun, sweep
from gate_models.offline.gate_training.dataset import FamilyData, TrainingRows, families_of, family_data, rows_of
from gate_models.offline.runs.result_file import write_json
from gate_models.offline.runs.versions import software
from gate_models.offline.scorers.fluency import Fluency, load_judge


@dataclass(frozen=True, slots=True)
class FamilyAudit:
    """One family's sweep, read off."""

    family: str
    runs: Sequence[SweptRun]
    arms: Sequence[Arms]
    survivors: NDArray[np.bool_] | None
    """[runs]; None without a census."""
    data: FamilyData | None
    group: NDArray[np.int64] | None = None
    """[runs]: number of each run's family, where several stand together."""


def audit(settings: AuditSettings, gates: Path, out: Path, census_folder: Path | None) -> dict[str, Any]:
    """Run what is missing, write tables, plots and `audit.json`, and return the latter's content.

    Raises `ValueError` where a named family has no gate on this model.
    """
    with compute_mode(settings.threads):
        model = load_model(settings.model)
        bundles = _bundles(settings, gates, model)
        census = None if census_folder is None else load_census(census_folder, heavy=False)
        if census is not None and census.manifest["model_hash"] != model.spec.hash:
            raise ValueError(f"the census in {census_folder} was made with another model than '{settings.model}'")
        fluency = Fluency(load_judge(settings.fluency_model))
        audited = [_family(model, bundle, census, settings, out) for bundle in bundles]
    content = _header(settings, model, bundles, fluency)
    rows = {family.family: rows_of(family.data, whole=True) for family in audited if family.data is not None}
    for bundle, family in zip(bundles, audited, strict=True):
        accuracy = _accuracy(family.data, rows, settings) if settings.accuracy and family.data is not None else {}
        content["families"][family.family] = _write(family, bundle, accuracy, fluency, settings, out)
    if len(audited) > 1:
        pooled = _pooled(audited)
        content[POOLED] = _write(pooled, None, {}, fluency, settings, out)
    write_json(out / "audit.json", content)
    return content


def _bundles(settings: AuditSettings, gates: Path, model: DenoisingModel) -> list[GateBundle]:
    loaded, refused = artifact.load_all(gates)
    by_family = {bundle.family: bundle for bundle in loaded if bundle.regime.model_hash == model.spec.hash}
    missing = [family for family in settings.families if family not in by_family]
    if missing or not by_family:
        reasons = "; ".join(reason for _, reason in refused)
        raise ValueError(
            f"{gates} holds no gate of {', '.join(missing) or 'any family'} for model {model.spec.hash}; "
            f"train one with astargate gate train{f' ({reasons})' if reasons else ''}"
        )
    return [by_family[family] for family in settings.families or sorted(by_family)]


def audit_prompts(bundle: GateBundle, census: Census | None, count: int | None) -> list[TaskPrompt]:
    """Prompts of the audit split: those that the census measured first, then others of the task.

    No head or ladder has seen them. The canvas is the audited one.
    """
    task, seed = bundle.evidence["task"], bundle.evidence["census"]["seed"]
    measured = {prompt.key[1] for prompt in census.of(task, "audit")} if census is not None else set()
    audit_set = [prompt for prompt in load_task(task) if split_of(seed, task, prompt.id) == "audit"]
    ordered = sorted(audit_set, key=lambda prompt: prompt.id not in measured)
    length, steps = bundle.regime.gen_length[0], bundle.regime.steps[0]
    return [replace(prompt, gen_length=length, steps=steps) for prompt in ordered[:count]]


def _family(
    model: DenoisingModel, bundle: GateBundle, census: Census | None, settings: AuditSettings, out: Path
) -> FamilyAudit:
    reader = TextReader.of(model.spec, model.codec)
    prompts = audit_prompts(bundle, census, settings.prompts)
    regime = bundle.regime.lowest(bundle.regime.tail_widths[0])
    swept = SweepSettings(
        samples=settings.samples,
        seed=settings.seed,
        guidance_scale=regime.guidance_scale,
        temperature=regime.temperature,
        order=regime.order,
        widths=settings.widths,
        gates=tuple(sorted({*SweepSettings().gates, *bundle.checkpoints})),
    )
    runs = sweep(model, prompts, swept, out / f"sweep-{bundle.family}.jsonl")
    data = survivors = None
    if census is not None and bundle.family in families_of(census):
        data = family_data(census, bundle.evidence["task"], reader, model.spec.hash)
        known = {prompt for prompt, a_star in zip(data.prompts, data.a_star, strict=True) if np.isfinite(a_star)}
        survivors = np.array([run.prompt.id in known for run in runs])
    widths = [width for width in settings.widths if width <= bundle.regime.gen_length[0]]
    arms = all_arms(runs, bundle, reader, widths, swept.gates, data)
    return FamilyAudit(bundle.family, runs, arms, survivors, data)


def _accuracy(data: FamilyData, rows: Mapping[str, TrainingRows], settings: AuditSettings) -> dict[str, list[Accuracy]]:
    causal, whole = rows_of(data, whole=False), rows[data.family]
    first = [
        cross_validated(whole, "whole-run features", trees=settings.trees),
        cross_validated(causal, "causal features, all checkpoints", trees=settings.trees),
    ]
    left = leave_one_family_out(rows, data.family, trees=settings.trees)
    return {
        "accuracy": [*first, *([left] if left is not None else [])],
        "ablation": ablation(whole, trees=max(50, settings.trees // 4)),
    }


def _pooled(audited: Sequence[FamilyAudit]) -> FamilyAudit:
    """All families' runs together; where a family lacks a source, its requests get full CFG."""
    names = list(dict.fromkeys((arms.source, arms.width) for family in audited for arms in family.arms))
    joined = []
    for source, width in names:
        parts, first = [], 0
        for family in audited:
            family_arms = next((arms for arms in family.arms if (arms.source, arms.width) == (source, width)), None)
            part = family_arms or replace(never_arms(family.runs, width), source=source)
            parts.append(replace(part, prompt=part.prompt + first))
            first += int(part.prompt.max()) + 1
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        texts = tuple(text for part in parts for text in part.texts)
        joined.append(Arms(source, width, texts=texts, **arrays))
    known = [family.survivors for family in audited if family.survivors is not None]
    survivors = np.concatenate(known) if len(known) == len(audited) else None
    group = np.repeat(np.arange(len(audited)), [len(family.runs) for family in audited])
    return FamilyAudit(POOLED, [run for family in audited for run in family.runs], joined, survivors, None, group)


def _write(
    family: FamilyAudit,
    bundle: GateBundle | None,
    accuracy: Mapping[str, list[Accuracy]],
    fluency: Fluency,
    settings: AuditSettings,
    out: Path,
) -> dict[str, Any]:
    everyone = results(family.arms, fluency, family=family.group)
    survivors = family.survivors is not None and family.survivors.any()
    measured = results(family.arms, fluency, family.survivors, family.group) if survivors else []
    name = f"audit-{family.family}"
    plot(everyone, f"{family.family}: {everyone[0].prompts} audit prompts", out / f"{name}.png")
    parts = [f"# Gate audit: {family.family}", _preamble(family, bundle, settings, fluency), f"![frontier]({name}.png)"]
    for width in sorted({result.width for result in everyone if result.source.startswith("fixed ")}):
        parts += [f"## K = {width}, intention-to-treat", source_table(everyone, width)]
        if measured:
            parts += [f"### K = {width}, survivors ({measured[0].prompts} prompts)", source_table(measured, width)]
        parts += [f"### K = {width}, fixed cuts", source_table(everyone, width, fixed=True)]
    for title, rows in accuracy.items():
        parts += [f"## {title.capitalize()} (cross-validated by prompt)", accuracy_table(rows)]
    (out / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return {
        "version": None if bundle is None else bundle.version,
        "intention_to_treat": [asdict(result) for result in everyone],
        "survivors": [asdict(result) for result in measured],
        **{title: [asdict(row) for row in rows] for title, rows in accuracy.items()},
    }


def _preamble(family: FamilyAudit, bundle: GateBundle | None, settings: AuditSettings, fluency: Fluency) -> str:
    prompts = len({run.prompt.id for run in family.runs})
    gate = "" if bundle is None else f"Gate {bundle.version} on model {bundle.regime.model_hash}. "
    return (
        f"{gate}{prompts} audit prompts, {settings.samples} fresh trajectories each, seed {settings.seed}; perplexity "
        f"by {fluency.judge.name}. Intervals: 95 %, bootstrap over prompts. *vs* columns are differences of success "
        "on the same runs; *at equal rows* is against a coin between the two fixed cuts that cost as much on "
        "average, in each family by itself; "
        "*handed off* and *differs* (from the constant's step) are shares of runs. Rows of `whole-run` sources include "
        "the separate recorded run (2T) that they need. Heads are trained for the tail widths of the census; at "
        "another width the nearest smaller one's decide."
    )


def _header(
    settings: AuditSettings, model: DenoisingModel, bundles: Sequence[GateBundle], fluency: Fluency
) -> dict[str, Any]:
    return {
        "seed": settings.seed,
        "model": model.spec.name,
        "model_hash": model.spec.hash,
        "judge": fluency.judge.name,
        "software": software(),
        "settings": asdict(settings),
        "gates": {bundle.family: bundle.version for bundle in bundles},
        "families": {},
    }


def summary(content: Mapping[str, Any], width: int) -> str:
    """One line a source at a tail width: what the command prints."""
    part = content.get(POOLED) or next(iter(content["families"].values()))
    lines = []
    for row in part["intention_to_treat"]:
        if (row["width"] == width and not row["source"].startswith("fixed ")) or row["source"] == "full_cfg":
            low, high = row["success"]["low"], row["success"]["high"]
            name = f"{row['source']} K={row['width']}"
            lines.append(f"{name:24} {row['success']['value']:.3f} [{low:.2f}, {high:.2f}]  {row['rows']:6.1f} rows")
    return "\n".join(lines)
