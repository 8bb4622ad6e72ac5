"""The `drained` threshold of requests that no other gate fits: one for each model, measured over many settings at once.

A gate of one family serves the setting that it was measured in. A request in any other setting gets this threshold.
It was chosen on requests whose guidance scale, temperature, canvas, steps, blocks and order were drawn at random, so
that its loss is an average over settings and says little of any single one. Families whose guidance it is known to cut
off too early are withheld. A model without a measurement gets a cautious gate (`UNMEASURED`), and answers say that
nothing is known of it, until `astargate drained pooled` has measured the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from decoding.gates.builtin import BUILTIN, DrainedGate
from decoding.gates.protocol import Evidence, MeasuredLoss, Regime
from decoding.policy.gate import GATE_DEFAULTS
from decoding.request.job import TEMPLATE
from gate_models.gates.calibrated.files import read_entries, shipped_file, write_entries

FORMAT: Final = 1
POOLED: Final = f"pooled-{FORMAT}"
"""Version of a gate at a pooled threshold."""
UNMEASURED: Final = DrainedGate(GATE_DEFAULTS["threshold"], earliest=0.5, version="unmeasured")
"""The gate of a model that was not measured: half of the steps are guided whatever it reads, so that it can save a
quarter of full CFG at most.
"""
FILE: Final = "pooled.json"
"""Name of the file, in the package and in a folder of the operator's own gates."""
_PLAIN: Final[Mapping[str, Any]] = {
    "top_p": 1.0,
    "confidence": "probability",
    "tail_width": 1,
    "tail_reuse": None,
    "tail_temperature": None,
}
"""Fields of `Regime` that were measured at one value."""


def numbers_of(regime: Regime) -> dict[str, float]:
    """What of a setting is measured over a range, and may lie anywhere in it."""
    return {
        "guidance_scale": regime.guidance_scale,
        "temperature": regime.temperature,
        "blank tokens" if regime.eos == TEMPLATE else "gen_length": float(regime.gen_length),
        "steps / gen_length": regime.steps / regime.gen_length,
    }


def names_of(regime: Regime) -> dict[str, str]:
    """What of a setting is measured at some values, and serves at no other."""
    width = "" if regime.guided_width == 1 else f", {regime.guided_width} a step"
    boost = "" if regime.boost_threshold is None else f", boost_threshold {regime.boost_threshold:g}"
    limit = "" if regime.plausibility is None else f", plausibility {regime.plausibility:g}"
    return {"order": f"{regime.order}{width}{boost}{limit}", "end of text": regime.eos}


@dataclass(frozen=True, slots=True)
class PooledThreshold:
    """One model's threshold. `threshold` None: none of those that were tried keeps the loss within the margin."""

    model_hash: str
    threshold: float | None
    earliest: float
    """No handoff before this fraction of the steps: early handoffs are where unmeasured settings lose."""
    loss: float | None
    """Success of full CFG less that of the threshold, on prompts that had no say in its choice."""
    loss_interval_95: tuple[float, float] | None
    pairs: int
    """Pairs of texts behind `loss`: one guided to the end, one handed off, from the same state."""
    rows_of_full_cfg: float | None
    """Share of full CFG's forward evaluations that the same texts took."""
    ranges: Mapping[str, tuple[float, float]]
    """Lowest and highest measured value of what `numbers_of` a setting tells."""
    values: Mapping[str, Sequence[str]]
    """Measured values of what `names_of` a setting tells."""
    withheld: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By family that the threshold harms: its loss with an interval; such requests keep full CFG."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured: loss by threshold and by group of settings, seed, processor minutes."""

    @property
    def measured(self) -> MeasuredLoss | None:
        """The loss, as answers tell it."""
        if self.loss is None or self.loss_interval_95 is None:
            return None
        return MeasuredLoss(self.loss, *self.loss_interval_95, self.pairs)

    def outside(self, regime: Regime) -> list[str]:
        """What of `regime` was not measured, in words ("guidance_scale 8 (measured: 1 to 4)")."""
        different = []
        for name, value in numbers_of(regime).items():
            if name not in self.ranges:
                different.append("templates" if name == "blank tokens" else name)
                continue
            low, high = self.ranges[name]
            if not low <= value <= high:
                different.append(f"{name} {value:g} (measured: {low:g} to {high:g})")
        for name, word in names_of(regime).items():
            if word not in self.values[name]:
                different.append(f"{name} {word} (measured: {'; '.join(self.values[name])})")
        return different + [name for name, value in _PLAIN.items() if getattr(regime, name) != value]


def unmeasured(model_hash: str) -> str:
    """What is told of a model without a pooled threshold, and how it gets one."""
    return (
        f"no drained threshold was measured for this model ({model_hash}), which gets a cautious one; `astargate "
        "drained pooled --model MODEL --out GATES/pooled.json` measures it, `astargate serve --gates GATES` serves that"
    )


def evidence_of(version: str) -> Evidence:
    """What is known of a gate, by its version."""
    if version in (BUILTIN, UNMEASURED.version):
        return "none"
    return "pooled" if version == POOLED else "audited"


def shipped_pooled(folder: Path | None = None) -> tuple[PooledThreshold, ...]:
    """The thresholds in a folder of the operator's own, then the package's. Raises `ValueError` as `read_pooled`."""
    paths = [*([] if folder is None else [folder / FILE]), shipped_file(FILE)]
    return tuple(one for path in paths if path.is_file() for one in read_pooled(path))


def read_pooled(path: Path) -> list[PooledThreshold]:
    """Read a file of pooled thresholds. Raises `ValueError` that names the file and what is wrong with it."""
    return read_entries(path, "pooled thresholds", "models", FORMAT, _entry)


def write_pooled(thresholds: Sequence[PooledThreshold], path: Path) -> None:
    """Write thresholds as JSON; those of other models that `path` holds stay."""
    fresh = {one.model_hash for one in thresholds}
    earlier = read_pooled(path) if path.is_file() else []
    write_entries(path, "models", FORMAT, [*(one for one in earlier if one.model_hash not in fresh), *thresholds])


_ANY: Final = Regime("", None, 1.0, 1, 1, 1, 1.0, None, "probability", "confidence", "as_is")


def _entry(content: Mapping[str, Any]) -> PooledThreshold:
    interval = content["loss_interval_95"]
    ranges = {name: _pair(pair) for name, pair in content["ranges"].items()}
    if lacking := numbers_of(_ANY).keys() - ranges.keys():
        raise KeyError(*lacking)
    threshold = content["threshold"]
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold {threshold} is not in (0, 1]")
    if not 0.0 <= content["earliest"] < 1.0:
        raise ValueError(f"earliest {content['earliest']} is not in [0, 1)")
    return PooledThreshold(
        **{
            **content,
            "loss_interval_95": None if interval is None else _pair(interval),
            "ranges": ranges,
            "values": {name: tuple(content["values"][name]) for name in names_of(_ANY)},
        }
    )


def _pair(values: Sequence[float]) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)
