"""GET /v1/gates/{family}/audit: what the online shadow audit says of a family's gates."""

from __future__ import annotations

from fastapi import APIRouter

from decoding.constraints import FAMILIES
from service.backend.watched_gates import AuditedGate
from service.http.errors import ApiError
from service.routes import examples
from service.routes.common import ServiceDep
from service.routes.gates import SHOWN
from service.schemas.shadow import ChosenSamples, GateAudit, GateAuditList, PairCounts, SuccessGap
from service.shadow_audit.audit import Shadow
from service.shadow_audit.store import GateRecord

router = APIRouter(prefix="/v1", tags=["audit"])


@router.get(
    "/gates/{family}/audit", responses=examples.errors(404, 422, 503), summary="The shadow audit of a family's gates"
)
async def gate_audit(family: str, service: ServiceDep) -> GateAuditList:
    """Every gate of this model that was audited here, or would be. The gap is success of handoff less full CFG."""
    shadow, jobs = service.shadow, service.jobs
    families = dict.fromkeys((*FAMILIES, *(gate.family for gate in shadow.watch.held)))
    if family not in families:
        known = ", ".join(families)
        raise ApiError(404, f"'{family[:SHOWN]}' is no family; there are {known}", code="not_found", param="family")
    records = {
        record.gate: record for record in await jobs.query(lambda: shadow.store.gates(shadow.model_hash, family))
    }
    gates = dict.fromkeys([*(gate for gate in shadow.watch.held if gate.family == family), *records])
    return GateAuditList(family=family, data=[_audit(shadow, gate, records.get(gate)) for gate in gates])


def _audit(shadow: Shadow, gate: AuditedGate, record: GateRecord | None) -> GateAudit:
    verdict, watch = shadow.watch.verdict(gate), shadow.watch
    share = None if record is None else record.handoff_share
    counted = record or GateRecord(gate, "uncertified", 0.0)
    return GateAudit(
        source=gate.source,
        version=gate.version,
        model_hash=gate.model_hash,
        tail_width=gate.tail_width,
        settings=dict(gate.settings),
        offered=gate in watch.held,
        state=watch.state(gate),
        since=None if record is None else record.since,
        pairs=verdict.pairs,
        prompts=verdict.prompts,
        counts=PairCounts(**verdict.counts),
        epoch=verdict.epoch,
        epoch_pairs=verdict.epoch_pairs,
        gap=SuccessGap(estimate=verdict.gap, low=verdict.low, high=verdict.high),
        handoff_share=share,
        itt_gap=_scaled(verdict.gap, verdict.low, verdict.high, 1.0 if share is None else share),
        margin=shadow.settings.audit_margin,
        confidence=shadow.settings.audit_confidence,
        needed=verdict.needed,
        chosen=ChosenSamples(
            handed_off=counted.queued + counted.dropped, kept=counted.kept, unfinished=counted.unfinished
        ),
        waiting=counted.waiting,
        dropped=counted.dropped + counted.failed,
        share=watch.share(gate),
    )


def _scaled(estimate: float | None, low: float, high: float, share: float) -> SuccessGap:
    return SuccessGap(estimate=None if estimate is None else estimate * share, low=low * share, high=high * share)
