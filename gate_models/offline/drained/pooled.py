"""Measure one `drained` threshold for all settings of a model: what a request gets that no other gate fits.

Each pair is one guided run to its end and, for every gate of a grid, the same run handed off where the gate would have,
with the same noise: the texts are those that a server would have written. One command measures a model in minutes, so
that new weights need no more than that. A gate of the grid is a threshold and an earliest fraction of the steps: losses
come from early handoffs. Three quarters of the prompts choose (of the gates whose loss is within the margin at the
upper end of its interval, the one under which most texts save). The audit prompts, which had no say, give the loss that
answers tell. A family that the chosen gate certainly harms is withheld.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.scheduler import Scheduler
from decoding.gates.builtin import DrainedGate, NeverGate
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.request.job import regime_of
from gate_models.gates.calibrated.files import shipped_file
from gate_models.gates.calibrated.pooled import FILE, PooledThreshold, names_of, numbers_of, read_pooled, write_pooled
from gate_models.offline.census.noninferiority import MARGIN
from gate_models.offline.drained.draws import Draw, draws
from gate_models.offline.drained.settings import PooledSettings
from gate_models.offline.drained.templates import template_draws
from gate_models.offline.gate_audit.sweep import drained_step
from gate_models.offline.runs.result_file import identity
from gate_models.offline.runs.versions import software
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.statistics.bootstrap import bootstrap, difference_of_success
from gate_models.statistics.intervals import Estimate

THRESHOLDS: Final = (0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
"""At 1 the gate hands off at its earliest step, in the middle of no word: a cut that is the same for all prompts."""
EARLIEST: Final = (0.0, 0.3, 0.5)
"""Fractions of the steps before which no gate of the grid hands off."""
SAVING: Final = 0.15
"""Share of full CFG's rows that a text must save to count as one that saves."""
CHUNK: Final = 16
"""Pairs that are decoded and written together."""
ENOUGH_PAIRS: Final = 20
"""Of a family before it may be withheld."""
Gate = tuple[float, float]
"""Threshold and earliest fraction of a gate of the grid."""
GRID: Final[tuple[Gate, ...]] = tuple((threshold, earliest) for threshold in THRESHOLDS for earliest in EARLIEST)
Text = tuple[bool, int, str]
"""Whether the constraint holds, forward evaluations, the text."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One draw: its guided text, and by gate the text of the same run handed off (the guided one where never)."""

    draw: Draw
    full: Text
    handed: Mapping[Gate, Text]
    seconds: float
    """Processor time."""


def measure(model: DenoisingModel, settings: PooledSettings, path: Path | None) -> list[Pair]:
    """Decode what `path` lacks, append it there, and return all pairs. Without a path nothing is kept.

    Raises `ValueError` where `path` holds runs of another model or other settings.
    """
    wanted = [*draws(model.spec, settings), *template_draws(model, settings)]
    drawn_by = {"tasks": settings.tasks, "seed": settings.seed}  # more pairs go on; a margin only reads them
    header = {"pooled": identity(model=model.spec.hash, settings=drawn_by, software=software())}
    known = _read(path, header, wanted)
    missing = [draw for draw in wanted if draw.index not in known]
    with tqdm(total=len(wanted), initial=len(wanted) - len(missing), unit="pair", desc="pooled threshold") as bar:
        for start in range(0, len(missing), CHUNK):
            pairs = _decoded(model, missing[start : start + CHUNK], settings.seed)
            known |= {pair.draw.index: pair for pair in pairs}
            _append(path, header, pairs)
            bar.update(len(pairs))
    return [known[draw.index] for draw in wanted]


def _decoded(model: DenoisingModel, chunk: Sequence[Draw], seed: int) -> list[Pair]:
    began = time.process_time()
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=2**62))
    guided = engine.submit_all([draw.job(model, seed) for draw in chunk])
    while engine.step():
        pass
    steps = [_handoffs(handle, model) for handle in guided]
    tails: list[dict[int, Handle]] = []
    for handle, at in zip(guided, steps, strict=True):
        ends = {step for step in at.values() if step < len(handle.result().trace.steps)}
        tails.append({step: engine.submit(_handed_off(handle, step, model.spec.mask_id)) for step in sorted(ends)})
    while engine.step():
        pass
    texts = [_texts(model, *of_draw) for of_draw in zip(chunk, guided, steps, tails, strict=True)]
    seconds = (time.process_time() - began) / len(chunk)
    return [Pair(draw, full, handed, seconds) for draw, (full, handed) in zip(chunk, texts, strict=True)]


def _handoffs(handle: Handle, model: DenoisingModel) -> dict[Gate, int]:
    """By gate: the step before which it hands the recorded run off; its end where never."""
    regime, trace = regime_of(handle.job, model.spec.hash), handle.result().trace
    return {gate: drained_step(trace, DrainedGate(*gate), regime) for gate in GRID}


def _handed_off(handle: Handle, step: int, mask_id: int) -> Any:
    """The rest of a run without guidance, with the noise that it would have drawn in service."""
    trace = handle.result().trace
    return replace(
        handle.job,
        gate=NeverGate(),
        start=tuple(trace.prefix(step, mask_id).tolist()),
        start_step=step,
        start_place=trace.place(step),
        handed_off=True,
    )


def _texts(
    model: DenoisingModel, draw: Draw, guided: Handle, steps: Mapping[Gate, int], tails: Mapping[int, Handle]
) -> tuple[Text, dict[Gate, Text]]:
    constraint = parse(draw.prompt.constraint)

    def text(handle: Handle, before: int) -> Text:
        outcome = handle.result()
        written = outcome.job.text(model.codec, outcome.content)
        return constraint.evaluate(written).satisfied, before + outcome.ledger.total, written

    full = text(guided, 0)
    ended = {step: text(tail, 2 * step) for step, tail in tails.items()}
    return full, {gate: ended.get(step, full) for gate, step in steps.items()}


# -- the file of runs --------------------------------------------------------------------------------------------------


def _append(path: Path | None, header: Mapping[str, str], pairs: Sequence[Pair]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        if file.tell() == 0:
            file.write(json.dumps(header) + "\n")
        for pair in pairs:
            handed = [[*gate, *text] for gate, text in pair.handed.items()]
            row = {"index": pair.draw.index, "full": pair.full, "handed": handed, "seconds": pair.seconds}
            file.write(json.dumps(row) + "\n")


def _read(path: Path | None, header: Mapping[str, str], wanted: Sequence[Draw]) -> dict[int, Pair]:
    """The pairs of an earlier run; a last line that was cut off is dropped from the file."""
    if path is None or not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines), encoding="utf-8")
    if not lines:
        return {}
    if json.loads(lines[0]) != header:
        raise ValueError(f"{path} holds runs of another model or other settings; give another --runs, or remove it")
    by_index = {draw.index: draw for draw in wanted}
    rows = [json.loads(line) for line in lines[1:]]
    return {row["index"]: _pair(by_index[row["index"]], row) for row in rows if row["index"] in by_index}


def _pair(draw: Draw, row: Mapping[str, Any]) -> Pair:
    handed = {(threshold, earliest): (ok, rows, text) for threshold, earliest, ok, rows, text in row["handed"]}
    ok, rows, text = row["full"]
    return Pair(draw, (ok, rows, text), handed, row["seconds"])


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(
    pairs: Sequence[Pair], model: DenoisingModel, settings: PooledSettings, fluency: Fluency | None
) -> PooledThreshold:
    """Of the gates whose loss is within the margin the one under which most texts save, and its reading on the audit
    prompts; of two alike the one with fewer rows.
    """
    setting = [pair for pair in pairs if not pair.draw.audit]
    audit = [pair for pair in pairs if pair.draw.audit]
    withheld = {gate: _withheld(setting, gate) for gate in GRID}
    curve = {gate: _reading(setting, gate, withheld[gate], fluency) for gate in GRID}
    safe = [gate for gate in GRID if curve[gate]["loss_interval_95"][1] <= settings.margin]
    regimes = [regime_of(pair.draw.job(model, settings.seed), model.spec.hash) for pair in pairs]
    numbers, names = [numbers_of(regime) for regime in regimes], [names_of(regime) for regime in regimes]
    chosen = min(
        safe, key=lambda gate: (-curve[gate]["texts_that_save"], curve[gate]["rows_of_full_cfg"]), default=None
    )
    kept = {} if chosen is None else withheld[chosen]
    reading = None if chosen is None or not audit else _reading(audit, chosen, kept, fluency)
    return PooledThreshold(
        model_hash=model.spec.hash,
        threshold=None if chosen is None else chosen[0],
        earliest=0.0 if chosen is None else chosen[1],
        loss=None if reading is None else reading["loss"],
        loss_interval_95=None if reading is None else tuple(reading["loss_interval_95"]),
        pairs=len(audit),
        rows_of_full_cfg=None if reading is None else reading["rows_of_full_cfg"],
        ranges={
            name: _range([of_one[name] for of_one in numbers if name in of_one])
            for name in sorted({name for of_one in numbers for name in of_one})
        },
        values={name: sorted({of_one[name] for of_one in names}) for name in names[0]},
        withheld=kept,
        evidence={
            "model": model.spec.name,
            "settings": asdict(settings),
            "software": software(),
            "processor_minutes": round(sum(pair.seconds for pair in pairs) / 60, 1),
            "pairs_that_chose": len(setting),
            "audit": reading,
            "curve": [{"threshold": gate[0], "earliest": gate[1], **curve[gate]} for gate in GRID],
            "groups": {} if chosen is None else _groups(pairs, chosen, kept),
        },
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    return float(min(values)), float(max(values))


def _losses(pairs: Sequence[Pair], gate: Gate, withheld: Mapping[str, Any]) -> NDArray[np.float64]:
    """Loss of each prompt [P], averaged over its pairs; a withheld family keeps full CFG and loses nothing."""
    of_prompt: dict[str, list[float]] = {}
    for pair in pairs:
        ok = pair.full[0] if pair.draw.family in withheld else pair.handed[gate][0]
        of_prompt.setdefault(pair.draw.prompt.id, []).append(float(pair.full[0]) - float(ok))
    return np.array([np.mean(values) for values in of_prompt.values()])


def _loss(pairs: Sequence[Pair], gate: Gate, withheld: Mapping[str, Any]) -> Estimate:
    """Mean loss over prompts."""
    return difference_of_success(_losses(pairs, gate, withheld))


def _withheld(pairs: Sequence[Pair], gate: Gate) -> dict[str, dict[str, Any]]:
    """Families whose loss is certainly more than a family's own calibration would allow: the interval is above that."""
    harmed = {}
    for family in sorted({pair.draw.family for pair in pairs} - {None}, key=str):
        of_family = [pair for pair in pairs if pair.draw.family == family]
        if len(of_family) < ENOUGH_PAIRS:
            continue
        loss = bootstrap(_losses(of_family, gate, {}))
        if loss.low > MARGIN:
            harmed[str(family)] = {"pairs": len(of_family), **_rounded(loss)}
    return harmed


def _reading(pairs: Sequence[Pair], gate: Gate, withheld: Mapping[str, Any], fluency: Fluency | None) -> dict[str, Any]:
    """Success, loss, rows and fluency under a gate, withheld families counting with their full CFG."""
    handed = [pair.full if pair.draw.family in withheld else pair.handed[gate] for pair in pairs]
    shares = [text[1] / pair.full[1] for pair, text in zip(pairs, handed, strict=True)]
    reading: dict[str, Any] = {
        "pairs": len(pairs),
        "success": round(float(np.mean([text[0] for text in handed])), 4),
        "full_cfg_success": round(float(np.mean([pair.full[0] for pair in pairs])), 4),
        **_rounded(_loss(pairs, gate, withheld)),
        "rows_of_full_cfg": round(float(np.mean(shares)), 4),
        "texts_that_save": round(float(np.mean([share <= 1.0 - SAVING for share in shares])), 4),
        "median_rows_of_full_cfg": round(float(np.median(shares)), 4),
        "withheld": sorted(withheld),
    }
    if fluency is not None:
        reading["perplexity"] = _perplexity(fluency, [text[2] for text in handed])
        reading["full_cfg_perplexity"] = _perplexity(fluency, [pair.full[2] for pair in pairs])
    return reading


def _perplexity(fluency: Fluency, texts: Sequence[str]) -> float | None:
    perplexity = fluency.perplexity(texts)
    return None if perplexity is None else round(perplexity, 1)


def _rounded(loss: Estimate) -> dict[str, Any]:
    return {"loss": round(loss.value, 4), "loss_interval_95": [round(loss.low, 4), round(loss.high, 4)]}


def _groups(pairs: Sequence[Pair], gate: Gate, withheld: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By factor and value: loss and rows of all pairs; what a withheld family would have lost is in `withheld`."""
    groups: dict[str, dict[str, list[Pair]]] = {}
    for pair in pairs:
        for factor, value in pair.draw.groups.items():
            groups.setdefault(factor, {}).setdefault(value, []).append(pair)
    return {
        factor: {value: _reading(members, gate, withheld, None) for value, members in by_value.items()}
        for factor, by_value in groups.items()
    }


def run(
    settings: PooledSettings,
    *,
    model: str = "mini",
    out: Path | None = None,
    runs: Path | None = None,
    threads: int = 1,
    load: Callable[[str], DenoisingModel] = load_model,
) -> PooledThreshold:
    """Measure the threshold of `model` and write it into `out` (None: the package's file) beside other models'.

    Raises `ValueError` where `out` or `runs` hold something else, `OSError` where they cannot be written.
    """
    target = shipped_file(FILE) if out is None else out
    if target.is_file():
        read_pooled(target)  # a file of another kind is refused before the work
    with compute_mode(threads):
        loaded = load(model)
        pairs = measure(loaded, settings, runs)
    chosen = choose(pairs, loaded, settings, Fluency(load_judge()))
    write_pooled([chosen], target)
    return chosen
