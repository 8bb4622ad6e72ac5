"""Measured horizons (when guidance may end for a prompt), kept for each API key and used by its later requests.

They serve `gate.source = "recorded"` and `repair.anchor = "peak"`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, and_, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from decoding.gates.protocol import Decision, GateResolution, GateView, Regime
from decoding.request.job import Job
from service.committor.tables import HORIZON_COLUMNS, HORIZONS, HorizonRecord, newest_first
from service.generation.repair_anchor import PeakChoice
from service.storage.database import Database, storable
from service.storage.errors import DatabaseError

NOT_IN_A_SETTING: Final = ("preset", "gate", "on_fallback", "repair", "budget_rows")
"""Policy fields that do not change how a text is decoded once its handoff step is fixed."""
LATER: Final = ("plausibility", "tail_rule", "tail_schedule", "tail_mend", "tail_temperature")
"""Policy fields that earlier measurements do not know: at their defaults they change no digest."""
UNKNOWN: Final = (
    'no horizon is recorded for this prompt, constraint and setting; POST /committor with "horizon": true measures one'
)
UNKEPT: Final = (
    'this prompt\'s horizon was measured before the peak of q0 was kept; POST /committor with "horizon": true measures '
    "it again"
)


def setting_of(job: Job, model_hash: str) -> str:
    """Digest of what determines the distribution of a run with a given handoff step: all but seed, gate and repair."""
    defaults = {item.name: item.default for item in fields(job.policy)}
    policy = {name: value for name, value in asdict(job.policy).items() if name not in NOT_IN_A_SETTING}
    for name in LATER:
        if policy[name] == defaults[name]:
            del policy[name]
    shape = job.gen_length, job.steps, job.block_length, asdict(job.sampling)
    return _digest(subject_of(job), model_hash, policy, shape)


def subject_of(job: Job) -> str:
    """Digest of the prompt, as the model sees it, of the constraint, and of the template if there is one."""
    template = () if job.template is None else (job.template.literals, job.template.ids)
    return _digest(list(job.prompt_ids), job.constraint, *template)


def _digest(*parts: object) -> str:
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RecordedGate:
    """Hands off at a measured a*; never where the measurement was censored (`step` None)."""

    step: int | None
    steps: int
    handoff_fate: str
    version: str
    """Id of the measurement."""
    source: str = "recorded"
    needs_stats: bool = False

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        return frozenset({self.step or 0})  # a censored one is asked too: its decision tells the fate

    def planned_step(self, steps: int) -> int | None:
        return steps if self.step is None else self.step

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        return [self._decision(view.step) for view in views]

    def _decision(self, step: int) -> Decision:
        horizon = None if self.step is None else self.step / self.steps
        ends = self.step is not None and step >= self.step
        return Decision(ends, predicted_horizon=horizon, handoff_fate=self.handoff_fate)


@dataclass(frozen=True, slots=True)
class Measured:
    """A horizon that has just been measured. `step` None: censored."""

    job: Job
    regime: Regime
    step: int | None
    peak: int | None
    """Step at which q0 is highest."""
    handoff_fate: str
    rollouts: int
    prompt: str
    job_id: str


class HorizonStore:
    """Every database statement about measured horizons."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def record(self, connection: Connection, key_id: str, measured: Measured) -> None:
        """Keep a horizon; a newer measurement of the same setting takes the older one's place."""
        job, regime = measured.job, measured.regime
        values: dict[str, Any] = {
            "id": f"hor-{uuid.uuid4().hex}",
            "key_id": key_id,
            "setting": setting_of(job, regime.model_hash),
            "subject": subject_of(job),
            "model_hash": regime.model_hash,
            "family": regime.family,
            "regime": asdict(regime),
            "prompt": storable(measured.prompt),
            "constraint_spec": job.constraint,
            "step": measured.step,
            "peak": measured.peak,
            "handoff_fate": measured.handoff_fate,
            "rollouts": measured.rollouts,
            "job_id": measured.job_id,
            "measured": self.database.now,
        }
        kind = postgresql if connection.dialect.name == "postgresql" else sqlite
        statement = kind.insert(HORIZONS).values(values)
        unique = ("key_id", "model_hash", "setting")
        newer = {name: statement.excluded[name] for name in values if name not in unique}
        connection.execute(statement.on_conflict_do_update(index_elements=unique, set_=newer))

    def find(self, key_id: str, job: Job, model_hash: str) -> HorizonRecord | None:
        """The horizon of exactly this setting."""
        of_key = and_(HORIZONS.c.key_id == key_id, HORIZONS.c.model_hash == model_hash)
        query = select(*HORIZON_COLUMNS).where(of_key, HORIZONS.c.setting == setting_of(job, model_hash))
        with self.database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else HorizonRecord.of(row)

    def nearest(self, key_id: str, job: Job) -> HorizonRecord | None:
        """The newest horizon of this prompt and constraint in another setting."""
        of_prompt = and_(HORIZONS.c.key_id == key_id, HORIZONS.c.subject == subject_of(job))
        query = select(*HORIZON_COLUMNS).where(of_prompt).order_by(HORIZONS.c.measured.desc()).limit(1)
        with self.database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else HorizonRecord.of(row)

    def page(self, key_id: str, limit: int, after: str | None = None) -> list[HorizonRecord]:
        """This key's horizons, newest first, from after the one with the id `after` on. Raises `UnknownEntryError`."""
        with self.database.read() as connection:
            rows = newest_first(connection, HORIZON_COLUMNS, HORIZONS.c.measured, key_id, limit, after)
            return [HorizonRecord.of(row) for row in rows]

    def forget(self, key_id: str, horizon_id: str) -> bool:
        """Remove a horizon of this key's; False where there is none."""
        statement = delete(HORIZONS).where(HORIZONS.c.key_id == key_id, HORIZONS.c.id == storable(horizon_id))
        with self.database.write() as connection:
            return connection.execute(statement).rowcount == 1


@dataclass(frozen=True, slots=True)
class CallerHorizons:
    """What one caller has measured, as the gate of a request and the anchor of its repair.

    Nothing is borrowed from other callers (contract 7). Both methods read the database: keep them off the event loop.
    """

    horizons: HorizonStore
    key_id: str

    def choice(self, job: Job, regime: Regime) -> GateResolution:
        """The gate for `job`, or why there is none."""
        horizon = self._find(job, regime)
        if isinstance(horizon, GateResolution):
            return horizon
        return GateResolution(
            RecordedGate(horizon.step, job.steps, horizon.handoff_fate, horizon.id), evidence="audited"
        )

    def peak(self, job: Job, regime: Regime) -> PeakChoice:
        """The step at which q0 of `job` is highest, or why it is not known."""
        horizon = self._find(job, regime)
        if isinstance(horizon, GateResolution):
            return PeakChoice(None, horizon.fallback_reason)
        return PeakChoice(horizon.peak, UNKEPT if horizon.peak is None else None)

    def _find(self, job: Job, regime: Regime) -> HorizonRecord | GateResolution:
        """The horizon of `job`, or the gate that says why there is none."""
        try:
            horizon = self.horizons.find(self.key_id, job, regime.model_hash)
            if horizon is not None:
                return horizon
            other = self.horizons.nearest(self.key_id, job)
        except DatabaseError:
            return GateResolution(None, "recorded horizons cannot be read at the moment")
        if other is None:
            return GateResolution(None, UNKNOWN)
        mine = asdict(regime)
        differing = [name for name, value in other.regime.items() if mine.get(name, value) != value]
        named = f" (it has another {', '.join(differing)})" if differing else ""
        return GateResolution(None, f"the horizon of this prompt was measured in another setting{named}", other.regime)
