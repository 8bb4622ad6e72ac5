"""Wire types of GET /v1/gates."""

from __future__ import annotations

from typing import Any, Literal

from service.schemas.base import Reply


class CertifiedMargin(Reply):
    """What a `risk` gate promises at one margin of its table, with 95 % confidence."""

    margin: float
    certified: bool
    earliest: float | None
    """No handoff before this fraction of the steps; null where nothing is certified."""
    refusal: str | None
    """Why nothing is certified, and how many more calibration prompts would do."""


class GateInfo(Reply):
    family: str | None
    source: str
    version: str
    fraction: float | None
    """Where a constant gate hands off; null: it keeps guidance on, or the gate decides on the way."""
    regime: dict[str, Any]
    """The setting that it was measured in; it serves no other."""
    checkpoints: list[float]
    """Fractions of the steps before which a learned gate decides."""
    margins: list[CertifiedMargin]
    """Of a `risk` gate."""
    evidence: dict[str, Any]
    """How it was made: prompts, rollouts, seed, data; `source` says where a cut was not measured here."""


class GateList(Reply):
    object: Literal["list"] = "list"
    data: list[GateInfo]
    refused: list[str]
    """Stored gates that must not be used, and why."""
