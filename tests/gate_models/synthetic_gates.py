"""Gates trained on made-up data: small, fast, and of any model and family."""

from __future__ import annotations

import numpy as np

from decoding.gates.protocol import Regime
from gate_models.features import vector
from gate_models.forest.heads import FateHeadEstimator, OrdinalHead
from gate_models.gates.learned.bundle import FateHead, GateBundle, HorizonHead
from gate_models.gates.learned.regime import AuditedRegime
from gate_models.offline.gate_training.dataset import FamilyData
from gate_models.offline.gate_training.settings import GateTrainSettings
from gate_models.offline.gate_training.train import constant_cut, ladder
from gate_models.offline.gate_training.value_fit import fit_head, induce
from gate_models.statistics.fixed_sequence import FixedSequenceTest

CHECKPOINTS = (0.1, 0.3, 0.5, 0.7, 0.9)


def regime(model_hash: str, family: str = "commongen-k3", length: int = 16, **fields) -> Regime:
    given = {"tail_width": 1, **fields}
    return Regime(
        model_hash, family, 2.0, length, length, given.pop("tail_width"), 1.0, None, "probability", "confidence",
        "as_is", **given,
    )  # fmt: skip


def family_data(model_hash: str = "hash", prompts: int = 120, seed: int = 0, length: int = 16) -> FamilyData:
    """P prompts with one run each. Half of them need guidance until the middle of the run, and a feature says so."""
    rng = np.random.default_rng(seed)
    at = np.array([round(f * length) for f in CHECKPOINTS])
    needy = rng.random(prompts) < 0.5
    shape = (prompts, len(CHECKPOINTS))
    features = rng.normal(size=(*shape, len(vector.NAMES))).astype(np.float32)
    features[..., vector.NAMES.index("kl_mean")] = needy[:, None]
    features[..., vector.NAMES.index("fraction")] = np.array(CHECKPOINTS)
    early = np.array(CHECKPOINTS) < 0.5
    loss = np.where(needy[:, None] & early, 0.6, 0.0)
    guided = np.full(shape, 0.9)
    return FamilyData(
        family="commongen-k3",
        task="commongen-k3",
        gen_length=length,
        steps=length,
        regime=regime(model_hash, length=length),
        checkpoints=CHECKPOINTS,
        at=at,
        prompts=tuple(f"p{i}" for i in range(prompts)),
        split=rng.choice(["train", "calibrate", "audit"], prompts, p=[0.4, 0.4, 0.2]),
        fate=np.where(needy, "handoff", "preformed"),
        a_star=np.where(needy, 0.5, np.nan),
        guided=guided,
        base={1: guided - loss, 8: guided - loss},
        count=np.full(shape, 12.0),
        prompt=np.arange(prompts),
        main=np.ones(prompts, dtype=bool),
        run_weight=np.full(prompts, 2.0),
        features=features,
        whole=features[:, -1],
        data_hash="made-up",
    )


def bundle(model_hash: str = "hash", *, prompts: int = 120, seed: int = 0, length: int = 16) -> GateBundle:
    """A gate from `family_data`, with every source."""
    data = family_data(model_hash, prompts, seed, length)
    runs = data.main_run()[data.of("train")]
    rows = data.features[runs].reshape(-1, len(vector.NAMES))
    points = len(CHECKPOINTS)
    fate = FateHeadEstimator(20).fit(rows, np.repeat(data.fate[runs], points))
    known = np.isfinite(data.a_star[runs])
    horizon = OrdinalHead(20).fit(
        data.features[runs][known].reshape(-1, len(vector.NAMES)), np.repeat(data.a_star[runs][known], points)
    )
    values = {width: fit_head(induce(data, width, runs, 0), 0, 20) for width in data.widths}
    edges = tuple(float(edge) for edge in horizon.edges_)
    risk_tests: dict[int, FixedSequenceTest] = {width: ladder(data, width, head) for width, head in values.items()}
    return GateBundle(
        regime=AuditedRegime.at(data.regime, data.widths),
        model="made-up",
        version=f"test{seed}",
        checkpoints=CHECKPOINTS,
        constants={width: constant_cut(data, width) for width in data.widths},
        fates=FateHead(tuple(map(str, fate.classes_)), fate.flat().rounded()),
        horizons=HorizonHead(horizon.flat().rounded(), horizon.shift, edges),
        values=values,
        risk_tests=risk_tests,
        evidence={"task": "commongen-k3", "prompts": {"train": len(runs)}, "rollouts": 12.0, "fates": {},
                  "horizons": {"prompts": int(known.sum())}, "notes": [], "data_hash": "made-up",
                  "census": {"seed": 0}, "seed": 0, "trees": GateTrainSettings().trees},
    )  # fmt: skip
