"""The gate sources that an audit compares, as arms of a sweep: served gates, the measured horizon, whole-run heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.gating import FractionGate, Gate
from decoding.policy import step_at
from gate_models.bundle import GateBundle
from gate_models.fill import Reader
from gate_models.forest import MIN_LEAF, TAU, FateHead, OrdinalHead
from gate_models.learned_gates import PolicyGate, RawGate, ValueGate
from gate_models.offline.gate_data import FamilyData
from gate_models.offline.gate_readoff import Arms, arms_at, decided_steps, never_arms, steps_by_prompt, wide_arms
from gate_models.offline.gate_sweep import SweptRun

PRICES: Final = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
MARGINS: Final = (0.03, 0.05, 0.12)
CONFIDENCE: Final = 0.95


def nearest_width(audited: Sequence[int], width: int) -> int:
    """The trained tail width that serves `width` in an audit: the largest up to it, else the smallest."""
    return max((own for own in audited if own <= width), default=min(audited))


def served(bundle: GateBundle, reader: Reader, width: int) -> Iterator[tuple[str, Gate]]:
    """The bundle's gates at a tail width, by the name of their row."""
    own = nearest_width(bundle.regime.tail_widths, width)
    common = (bundle.version, bundle.checkpoints, reader)
    cut = bundle.constants.get(own)
    if cut is not None:
        yield "constant", FractionGate(cut, source="constant")
    if bundle.horizons is not None:
        yield "raw", RawGate(*common, bundle.horizons)
    yield "policy", PolicyGate(*common, bundle.fates, bundle.horizons, cut)
    if own in bundle.values:
        for price in PRICES:
            yield f"value {price:g}", ValueGate(*common, bundle.values[own], price)
    for margin in MARGINS if own in bundle.ladders else ():
        choice = bundle.ladders[own].choose(margin, CONFIDENCE)
        if choice.setting is not None:
            earliest, price = choice.setting
            yield f"risk {margin:g}", ValueGate(*common, bundle.values[own], price, earliest, source="risk")


def all_arms(
    runs: Sequence[SweptRun],
    bundle: GateBundle,
    reader: Reader,
    widths: Sequence[int],
    gates: Sequence[float],
    data: FamilyData | None,
) -> list[Arms]:
    """Every source at every width. A gate that falls back in service (a risk margin that is not certified, a constant
    that is `never`) is full CFG here, as its requests are.
    """
    found = [never_arms(runs, 1)]
    found += [arms for width in widths if width > 1 and (arms := wide_arms(runs, width)) is not None]
    decided: dict[tuple[str, int], NDArray[np.int64]] = {}
    for width in widths:
        found += [arms_at(runs, f"fixed {gate:g}", width, _fixed(runs, gate)) for gate in gates]
        own = nearest_width(bundle.regime.tail_widths, width)
        names = dict(served(bundle, reader, width))
        for name, gate in names.items():
            if (name, own) not in decided:
                decided[name, own] = decided_steps(runs, gate, bundle.regime.lowest(own))
            found.append(arms_at(runs, name, width, decided[name, own]))
        for name in ("constant", *(f"risk {margin:g}" for margin in MARGINS)):
            if name not in names:
                found.append(replace(never_arms(runs, width), source=name))
        if data is not None:
            found += _measured(runs, data, bundle, width)
    return found


def _fixed(runs: Sequence[SweptRun], gate: float) -> NDArray[np.int64]:
    return np.array([step_at(gate, run.prompt.steps) for run in runs], dtype=np.int64)


def _measured(runs: Sequence[SweptRun], data: FamilyData, bundle: GateBundle, width: int) -> list[Arms]:
    """The oracle (a* measured on the census's run; no handoff without one) and the paper's whole-run sources."""
    horizons = {
        prompt: None if np.isnan(a_star) else round(a_star * data.steps)
        for prompt, a_star in zip(data.prompts, data.a_star, strict=True)
    }
    found = [arms_at(runs, "oracle", width, steps_by_prompt(runs, horizons))]
    cut = bundle.constants.get(nearest_width(bundle.regime.tail_widths, width))
    for name, steps in whole_run_steps(data, cut).items():
        found.append(arms_at(runs, name, width, steps_by_prompt(runs, steps), extra_rows=2.0 * data.steps))
    return found


def whole_run_steps(data: FamilyData, cut: float | None, seed: int = 0) -> Mapping[str, dict[str, int | None]]:
    """The paper's own variant: heads on whole-run features of training runs, asked about each prompt's *recorded* run
    (a separate one, which costs 2T rows). Steps by prompt for "raw whole-run" and "policy whole-run".
    """
    trained = np.flatnonzero(np.isfinite(data.a_star[data.prompt]) & (data.split[data.prompt] == "train"))
    labelled = np.flatnonzero((data.fate[data.prompt] != "") & (data.split[data.prompt] == "train"))
    fates = data.fate[data.prompt[labelled]]
    if np.unique(data.prompt[trained]).size < 2 or np.unique(fates).size < 2:
        return {}
    ordinal = OrdinalHead(random_state=seed, min_samples_leaf=MIN_LEAF).fit(
        data.whole[trained], data.a_star[data.prompt[trained]]
    )
    fate = FateHead(random_state=seed, min_samples_leaf=MIN_LEAF).fit(data.whole[labelled], fates)
    asked = data.whole[data.main_run()]
    horizons, edges = ordinal.predict(asked), ordinal.edges_[ordinal.terciles(asked)]
    shares = fate.predict_proba(asked)
    sure = (fate.classes_[shares.argmax(1)] == "handoff") & (shares.max(1) >= TAU)
    raw: dict[str, int | None] = {}
    policy: dict[str, int | None] = {}
    for index, prompt in enumerate(data.prompts):
        raw[prompt] = step_at(float(horizons[index]), data.steps)
        target = float(edges[index]) if sure[index] else cut
        policy[prompt] = None if target is None else step_at(target, data.steps)
    return {"raw whole-run": raw, "policy whole-run": policy}
