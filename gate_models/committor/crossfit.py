"""Cross-fitting: the handoff step is chosen on half of the rollouts and read on the others: chance flatters nothing.

Appendix C.5. Given a cell's k successes in N independent rollouts, a random half-split is hypergeometric, so counts
suffice. Cells that share random numbers are split by rollout instead, jointly over the arms of a state. Mirrored pairs
of rollouts stay together. That needs the outcomes.

Averages over the R splits are then bootstrapped over prompts (`statistics.bootstrap`). Percentiles over splits alone
are another, narrower interval: they say how much the split matters, not how much the prompts do.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.committor.choices import Coupling
from gate_models.committor.fates import handoff_fate, persistent_point

SPLITS: Final = 200


@dataclass(frozen=True, slots=True)
class FreezeCounts:
    """The freeze sweep of one prompt as counts [F] along its merged grid.

    `outcomes` [2, F, N] (base, guided), where kept, are needed for coupled cells.
    """

    key: str
    steps: tuple[int, ...]
    total_steps: int
    base: NDArray[np.int64]
    guided: NDArray[np.int64]
    base_count: NDArray[np.int64]
    guided_count: NDArray[np.int64]
    outcomes: NDArray[np.bool_] | None = None
    coupling: Coupling = "independent"

    @property
    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """q0 and qg [F]."""
        return self.base / self.base_count, self.guided / self.guided_count

    @property
    def point(self) -> int:
        """Index of the persistent safe point; F where censored."""
        return int(persistent_point(*self.rates))

    @property
    def fate(self) -> str:
        return handoff_fate(*self.rates)


@dataclass(frozen=True, slots=True)
class Halves:
    """Success rates [R, F] of the selection and the evaluation half, base and guided."""

    base_selection: NDArray[np.float64]
    guided_selection: NDArray[np.float64]
    base_evaluation: NDArray[np.float64]
    guided_evaluation: NDArray[np.float64]


def half_splits(counts: FreezeCounts, splits: int, rng: np.random.Generator) -> Halves:
    """R random half-splits of every cell of a prompt. Raises `ValueError` for cells of fewer than two rollouts."""
    if min(counts.base_count.min(), counts.guided_count.min()) < 2:
        raise ValueError("a half-split needs at least two rollouts a cell")
    if counts.coupling != "independent":
        return _joint_splits(counts, splits, rng)
    base = _split(counts.base, counts.base_count, splits, rng)
    guided = _split(counts.guided, counts.guided_count, splits, rng)
    return Halves(base[0], guided[0], base[1], guided[1])


def _split(
    successes: NDArray[np.int64], count: NDArray[np.int64], splits: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    half = count // 2
    drawn = rng.hypergeometric(successes, count - successes, half, size=(splits, successes.size))
    return drawn / half, (successes - drawn) / (count - half)


def _joint_splits(counts: FreezeCounts, splits: int, rng: np.random.Generator) -> Halves:
    if counts.outcomes is None:
        raise ValueError("coupled cells are split by rollout: keep the outcomes")
    block = 2 if counts.coupling == "antithetic" else 1
    arms, points, rollouts = counts.outcomes.shape
    blocks = rollouts // block
    if blocks < 2:
        raise ValueError(f"a half-split of {counts.coupling} cells needs at least {2 * block} rollouts a cell")
    means = counts.outcomes[..., : blocks * block].reshape(arms, points, blocks, block).mean(-1)
    half = blocks // 2
    order = rng.permuted(np.broadcast_to(np.arange(blocks), (splits, points, blocks)).copy(), axis=-1)
    taken = np.take_along_axis(means[:, None], np.broadcast_to(order, (arms, splits, points, blocks)), -1)
    selection, evaluation = taken[..., :half].mean(-1), taken[..., half:].mean(-1)
    return Halves(selection[0], selection[1], evaluation[0], evaluation[1])


@dataclass(frozen=True, slots=True)
class PromptValue:
    """One prompt's values, plug-in and cross-fitted (averages over the splits).

    `full` and `handoff` are full CFG's success and that of freezing at the selected point; where a split is censored
    both are full CFG's, read at the first grid point (the least conditioned on the recorded run), so that their
    difference is 0 by construction.
    """

    key: str
    fate: str
    index: int
    """Plug-in index of a* into the grid; F where censored."""
    a_star: float
    """Plug-in a* / T; 1 where censored."""
    plug_in_full: float
    plug_in_handoff: float
    full: float
    handoff: float
    selection_handoff: float
    """Success at the selected point as the selection half sees it; less `handoff`: the optimism."""
    censored_share: float
    """Share of the splits that select no point."""
    a_star_split: float
    """Median a* / T over the splits (1 where censored)."""
    oracle_plug_in: float
    """Base success at the best-looking grid point, as it looks."""
    oracle: float
    """The same point chosen on one half and read on the other."""
    survivor_difference: float | None
    """handoff - full over the splits that select a point; None without one."""

    @property
    def difference(self) -> float:
        """Freeze at a* minus full CFG, cross-fitted; censored splits count 0."""
        return self.handoff - self.full

    @property
    def optimism(self) -> float:
        """What selection and evaluation on the same rollouts adds to the value at a*."""
        return self.selection_handoff - self.handoff

    @property
    def oracle_optimism(self) -> float:
        return self.oracle_plug_in - self.oracle


def cross_fit(counts: FreezeCounts, rng: np.random.Generator, splits: int = SPLITS) -> PromptValue:
    """Plug-in and cross-fitted values of one prompt."""
    q0, qg = counts.rates
    points, index = q0.size, counts.point
    halves = half_splits(counts, splits, rng)
    chosen = persistent_point(halves.base_selection, halves.guided_selection)
    censored = chosen == points
    at = np.where(censored, 0, chosen)[:, None]

    def read(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.take_along_axis(values, at, 1)[:, 0]

    full = read(halves.guided_evaluation)
    handoff = np.where(censored, full, read(halves.base_evaluation))
    selection = np.where(censored, read(halves.guided_evaluation), read(halves.base_selection))
    fractions = np.append(np.array(counts.steps) / counts.total_steps, 1.0)
    best = halves.base_selection.argmax(1)[:, None]
    survivors = (handoff - full)[~censored]
    return PromptValue(
        key=counts.key,
        fate=counts.fate,
        index=index,
        a_star=float(fractions[index]),
        plug_in_full=float(qg[0 if index == points else index]),
        plug_in_handoff=float(qg[0] if index == points else q0[index]),
        full=float(full.mean()),
        handoff=float(handoff.mean()),
        selection_handoff=float(selection.mean()),
        censored_share=float(censored.mean()),
        a_star_split=float(np.median(fractions[chosen])),
        oracle_plug_in=float(q0.max()),
        oracle=float(np.take_along_axis(halves.base_evaluation, best, 1).mean()),
        survivor_difference=float(survivors.mean()) if survivors.size else None,
    )


def cross_fit_all(prompts: Sequence[FreezeCounts], seed: int, splits: int = SPLITS) -> list[PromptValue]:
    """Every prompt, each with a generator of its own (a prompt's value does not depend on the others)."""
    return [
        cross_fit(counts, np.random.default_rng([seed, zlib.crc32(counts.key.encode())]), splits) for counts in prompts
    ]
