"""What common or antithetic numbers buy: the variance of V against that of independent cells of the same size."""

from __future__ import annotations

import numpy as np

from gate_models.offline.census.records import Census


def variance_ratio(census: Census) -> float | None:
    """Var(V) of the census's coupled cells over the variance that independent cells of their rates would have.

    Pooled over every freeze state: below 1 the coupling helps, above it harms. None where cells are independent, or
    where no state has both arms and some spread. With antithetic numbers the mirrored pairs are the unit.
    """
    coupled = independent = 0.0
    for prompt in census.prompts:
        base = {cell.step: cell for cell in prompt.freeze(census.main_run, "base")}
        for guided in prompt.freeze(census.main_run, "guided"):
            other = base.get(guided.step)
            if other is None or guided.coupling == "independent" or other.count != guided.count:
                continue
            block = 2 if guided.coupling == "antithetic" else 1
            blocks = guided.count // block
            if blocks < 2:
                continue
            outcomes = np.stack([guided.outcomes, other.outcomes])[:, : blocks * block].astype(np.float64)
            means = outcomes.reshape(2, blocks, block).mean(-1)
            coupled += float((means[0] - means[1]).var(ddof=1)) / blocks
            independent += float(outcomes.var(axis=1, ddof=1).sum()) / (blocks * block)
    return coupled / independent if independent > 0 else None
