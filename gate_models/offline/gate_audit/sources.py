"""The gate sources that an audit compares, as arms of a sweep: served gates, the measured horizon, whole-run heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.gates.builtin import BuiltinGates, NeverGate
from decoding.gates.protocol import Gate
from decoding.policy.gate import GATE_FIELDS, GateSettings
from decoding.sampling.block_schedule import step_at
from gate_models.features.argmax_fill import TextReader
from gate_models.forest.heads import FateHeadEstimator, OrdinalHead
from gate_models.forest.terciles import TAU
from gate_models.forest.value_head import PRICES
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.sources import held_sources
from gate_models.offline.gate_audit.arms import Arms, arms_at, decided_steps, never_arms, steps_by_prompt, wide_arms
from gate_models.offline.gate_audit.sweep import SweptRun
from gate_models.offline.gate_training.dataset import FamilyData, rows_of

MARGINS: Final = (0.03, 0.05, 0.12)
CONFIDENCE: Final = 0.95


def nearest_width(audited: Sequence[int], width: int) -> int:
    """The trained tail width that serves `width` in an audit: the largest up to it, else the smallest."""
    return max((trained for trained in audited if trained <= width), default=min(audited))


def served(bundle: GateBundle, reader: TextReader, width: int) -> Iterator[tuple[str, Gate]]:
    """The bundle's gates at a tail width, as the server resolves them, by the name of their row; full CFG left out."""
    regime = bundle.regime.lowest(nearest_width(bundle.regime.tail_widths, width))
    resolver = LearnedGates([bundle], BuiltinGates(), reader)
    plain: dict[str, GateSettings] = {
        name: GateSettings(name) for name in held_sources(bundle) if not GATE_FIELDS[name]
    }
    settings = {
        **plain,
        **{f"value {price:g}": GateSettings("value", row_price=price) for price in PRICES},
        **{f"risk {margin:g}": GateSettings("risk", margin=margin, confidence=CONFIDENCE) for margin in MARGINS},
    }
    for name, setting in settings.items():
        gate = resolver.resolve(setting, regime).gate
        if gate is not None and not isinstance(gate, NeverGate):
            yield name, gate


def all_arms(
    runs: Sequence[SweptRun],
    bundle: GateBundle,
    reader: TextReader,
    widths: Sequence[int],
    gates: Sequence[float],
    data: FamilyData | None,
) -> list[Arms]:
    """Every source at every width. A gate that falls back in service (a risk margin that is not certified, a constant
    that is `never`) is full CFG here, as its requests are.
    """
    arms_of_all = [never_arms(runs, 1)]
    arms_of_all += [arms for width in widths if width > 1 and (arms := wide_arms(runs, width)) is not None]
    decided: dict[tuple[str, int], NDArray[np.int64]] = {}
    whole_run = {} if data is None else whole_run_heads(data)
    for width in widths:
        arms_of_all += [arms_at(runs, f"fixed {gate:g}", width, _fixed(runs, gate)) for gate in gates]
        trained_width = nearest_width(bundle.regime.tail_widths, width)
        names = dict(served(bundle, reader, width))
        for name, gate in names.items():
            if (name, trained_width) not in decided:
                decided[name, trained_width] = decided_steps(runs, gate, bundle.regime.lowest(trained_width))
            arms_of_all.append(arms_at(runs, name, width, decided[name, trained_width]))
        for name in ("constant", "policy", *(f"risk {margin:g}" for margin in MARGINS)):
            if name not in names:
                arms_of_all.append(replace(never_arms(runs, width), source=name))
        if data is not None:
            arms_of_all += _measured(runs, data, whole_run, bundle.constants.get(trained_width), width)
    return arms_of_all


def _fixed(runs: Sequence[SweptRun], gate: float) -> NDArray[np.int64]:
    return np.array([step_at(gate, run.prompt.steps) for run in runs], dtype=np.int64)


def _measured(
    runs: Sequence[SweptRun], data: FamilyData, whole_run: Mapping[str, WholeRun], cut: float | None, width: int
) -> list[Arms]:
    """The oracle (a* measured on the census's run; no handoff without one) and the paper's whole-run sources."""
    horizons = {
        prompt: None if np.isnan(a_star) else round(a_star * data.steps)
        for prompt, a_star in zip(data.prompts, data.a_star, strict=True)
    }
    measured = [arms_at(runs, "oracle", width, steps_by_prompt(runs, horizons))]
    targets: dict[str, dict[str, float | None]] = {
        "raw whole-run": {prompt: heads.horizon for prompt, heads in whole_run.items()},
        "policy whole-run": {prompt: cut if heads.edge is None else heads.edge for prompt, heads in whole_run.items()},
    }
    for name, target in targets.items() if whole_run else ():
        steps = {prompt: None if at is None else step_at(at, data.steps) for prompt, at in target.items()}
        measured.append(arms_at(runs, name, width, steps_by_prompt(runs, steps), extra_rows=2.0 * data.steps))
    return measured


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What the heads of the paper's variant say of a prompt."""

    horizon: float
    edge: float | None
    """Upper edge of its tercile where the fate head is sure of a handoff; None: the constant cut decides."""


def whole_run_heads(data: FamilyData, seed: int = 0) -> dict[str, WholeRun]:
    """The paper's variant: heads on whole-run features of training runs, asked about each prompt's *recorded* run
    (a separate one, which costs 2T rows). By prompt; empty where the data cannot train them.
    """
    labelled = rows_of(data, whole=True, splits=("train",))
    trained = labelled.of(np.isfinite(labelled.horizon))
    if np.unique(trained.group).size < 2 or np.unique(labelled.fate).size < 2:
        return {}
    ordinal = OrdinalHead(random_state=seed, min_samples_leaf=trained.leaf).fit(trained.features, trained.horizon)
    fate = FateHeadEstimator(random_state=seed, min_samples_leaf=labelled.leaf).fit(labelled.features, labelled.fate)
    asked = data.whole[data.main_run()]
    horizons, edges = ordinal.predict(asked), ordinal.edges_[ordinal.terciles(asked)]
    shares = fate.predict_proba(asked)
    sure = (fate.classes_[shares.argmax(1)] == "handoff") & (shares.max(1) >= TAU)
    return {
        prompt: WholeRun(float(horizons[index]), float(edges[index]) if sure[index] else None)
        for index, prompt in enumerate(data.prompts)
    }
