"""GET /v1/gates: the calibrated and learned gates that this server holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from gate_models.gates.calibrated.constant import ConstantCut, version_of
from gate_models.gates.calibrated.drained import MEASURED, DrainedThreshold
from gate_models.gates.calibrated.pooled import POOLED, PooledThreshold
from gate_models.gates.learned.audit_report import AuditReport
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.sources import held_sources
from gate_models.statistics.fixed_sequence import MARGINS
from service.backend.watched_gates import AuditedGate
from service.http.errors import ApiError
from service.lifecycle import Service
from service.routes import examples
from service.routes.common import ServiceDep
from service.schemas.gates import CertifiedMargin, GateFamily, GateInfo, GateList, OfflineAudit, PooledInfo

router = APIRouter(prefix="/v1", tags=["catalogue"])
CONFIDENCE: Final = 0.95
SHOWN: Final = 64
"""Characters of an unknown family that an error repeats."""
Evidence = Annotated[
    bool,
    Query(
        description="Add how each gate was made (losses by threshold, prompts, seeds) and its margins: twice as long."
    ),
]
_SHOWN: Final = ("task", "prompts", "runs", "rollouts", "fates", "horizons", "seed", "data_hash", "notes")


@router.get("/gates", responses=examples.errors(422, 503), summary="Gates that this server holds")
async def gates(service: ServiceDep, evidence: Evidence = False) -> GateList:
    """Calibrated and learned gates, one a family, source and tail width. A source that is not here needs none."""
    backend = service.backend
    listed, pooled = _listed(service), None if backend.pooled is None else _pooled(backend.pooled)
    if not evidence:
        listed = [info.model_copy(update={"evidence": {}, "margins": []}) for info in listed]
        pooled = pooled and pooled.model_copy(update={"evidence": {}})
    return GateList(data=listed, refused=[reason for _, reason in backend.gates.refused], pooled=pooled)


@router.get(
    "/gates/{family}", responses=examples.errors(404, 422, 503), summary="The gates of one family and their audit"
)
async def gate_family(family: str, service: ServiceDep) -> GateFamily:
    """What this server holds for a family, and what the offline audit of its learned gates found."""
    backend, listed = service.backend, _listed(service)
    of_family = [gate for gate in listed if gate.family == family]
    if not of_family:
        known = sorted({gate.family for gate in listed if gate.family is not None})
        text = f"this server holds no gate of family '{family[:SHOWN]}'; it has {', '.join(known) or 'none'}"
        raise ApiError(404, text, code="not_found", param="family")
    reports = [
        backend.reports[version]
        for version in dict.fromkeys(g.version for g in of_family)
        if version in backend.reports
    ]
    return GateFamily(family=family, gates=of_family, audits=[_audit(report) for report in reports])


def _listed(service: Service) -> list[GateInfo]:
    """Constant cuts, drained thresholds, then the learned gates; with the state of each."""
    backend, watch = service.backend, service.shadow.watch
    listed = [*map(_constant, backend.cuts), *map(_drained, backend.thresholds)]
    listed += [info for bundle in backend.gates.bundles for info in _learned(bundle)]
    for info in listed:
        info.state = next((watch.state(gate) for gate in watch.held if _is(gate, info)), None)
    return listed


def _is(gate: AuditedGate, info: GateInfo) -> bool:
    """Whether `info` describes `gate`; of a regime with ranges, gates are audited at the lower ends."""
    described = {name: value[0] if isinstance(value, list) else value for name, value in info.regime.items()}
    described |= {"family": info.family, "source": info.source, "version": info.version}
    described |= {"fraction": info.fraction, "threshold": info.threshold}
    identity = {name: getattr(gate, name) for name in ("model_hash", "family", "source", "version", "tail_width")}
    return all(
        described[name] == value for name, value in (identity | dict(gate.settings)).items() if name in described
    )


def _audit(report: AuditReport) -> OfflineAudit:
    content = asdict(report)
    del content["family"]
    return OfflineAudit.model_validate(content)


def _pooled(pooled: PooledThreshold) -> PooledInfo:
    content = asdict(pooled)
    del content["model_hash"]
    return PooledInfo(version=POOLED, **content)


def _constant(cut: ConstantCut) -> GateInfo:
    return GateInfo(
        family=cut.regime.family,
        source="constant",
        version=version_of(cut),
        fraction=cut.fraction,
        regime=asdict(cut.regime),
        checkpoints=[],
        margins=[],
        evidence=dict(cut.evidence),
    )


def _drained(measured: DrainedThreshold) -> GateInfo:
    promised = [
        CertifiedMargin(
            margin=float(margin),
            certified=threshold is not None,
            earliest=None,
            threshold=threshold,
            refusal=None if threshold is not None else "no threshold is certified on these calibration prompts",
        )
        for margin, threshold in measured.certified.items()
    ]
    return GateInfo(
        family=measured.regime.family,
        source="drained",
        version=MEASURED,
        fraction=None,
        threshold=measured.threshold,
        regime=asdict(measured.regime),
        checkpoints=[],
        margins=promised,
        evidence=dict(measured.evidence),
    )


def _learned(bundle: GateBundle) -> Iterator[GateInfo]:
    """One entry a source and tail width; its constant cut too, which `policy` falls back on."""
    evidence: dict[str, Any] = {name: bundle.evidence[name] for name in _SHOWN if name in bundle.evidence}
    for width in bundle.regime.tail_widths:
        for source in held_sources(bundle, width):
            yield GateInfo(
                family=bundle.family,
                source=source,
                version=bundle.version,
                fraction=bundle.constants.get(width) if source in ("constant", "policy") else None,
                regime=bundle.regime.at_width(width),
                checkpoints=[] if source == "constant" else list(bundle.checkpoints),
                margins=_margins(bundle, width) if source == "risk" else [],
                evidence=evidence,
            )


def _margins(bundle: GateBundle, width: int) -> list[CertifiedMargin]:
    margins = []
    for margin in MARGINS:
        choice = bundle.risk_tests[width].choose(margin, CONFIDENCE)
        earliest = None if choice.setting is None else choice.setting[0]
        margins.append(
            CertifiedMargin(
                margin=margin, certified=choice.setting is not None, earliest=earliest, refusal=choice.refusal
            )
        )
    return margins
