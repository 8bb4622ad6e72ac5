"""GET /v1/gates: the calibrated and learned gates that this server holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter

from gate_models.bundle import GateBundle
from gate_models.constants import ConstantCut, version_of
from gate_models.ladder import MARGINS
from service import examples
from service.routes.common import ServiceDep
from service.schemas.gates import CertifiedMargin, GateInfo, GateList

router = APIRouter(prefix="/v1", tags=["catalogue"])
CONFIDENCE: Final = 0.95
_SHOWN: Final = ("task", "prompts", "runs", "rollouts", "fates", "horizons", "seed", "data_hash", "notes")


@router.get("/gates", responses=examples.errors(503), summary="Gates that this server holds")
async def gates(service: ServiceDep) -> GateList:
    """Calibrated and learned gates, one a family, source and tail width. A source that is not here needs none."""
    held = service.backend.gates
    listed = [_constant(cut) for cut in service.backend.cuts]
    listed += [info for bundle in held.bundles for info in _learned(bundle)]
    return GateList(data=listed, refused=[reason for _, reason in held.refused])


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


def _learned(bundle: GateBundle) -> Iterator[GateInfo]:
    """One entry a source and tail width; its constant cut too, which `policy` falls back on."""
    evidence: dict[str, Any] = {name: bundle.evidence[name] for name in _SHOWN if name in bundle.evidence}
    for width in bundle.regime.tail_widths:
        for source in bundle.sources:
            if (source == "value" and width not in bundle.values) or (source == "risk" and width not in bundle.ladders):
                continue
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
    found = []
    for margin in MARGINS:
        choice = bundle.ladders[width].choose(margin, CONFIDENCE)
        earliest = None if choice.setting is None else choice.setting[0]
        found.append(
            CertifiedMargin(
                margin=margin, certified=choice.setting is not None, earliest=earliest, refusal=choice.refusal
            )
        )
    return found
