"""What an offline audit measured for one family's gate: the small form beside a gate that a server shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from decoding.gates.protocol import MeasuredLoss

REPORT: Final = "audit.json"
POOLED: Final = "pooled"
"""In the place of a family: all audited families together."""


class AuditReportError(ValueError):
    """A stored report that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A difference of success with its 95 % interval (bootstrap over prompts)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AuditPoint:
    """One gate source at one tail width over all audit prompts (intention to treat)."""

    source: str
    tail_width: int
    success: float
    low: float
    """Success at the lower end of its 95 % interval."""
    high: float
    forward_evaluations: float
    """A text, on average; whole-run sources include the separate run that they read."""
    perplexity: float | None
    repeats: float
    """Share of neighbouring words that repeat."""
    handed_off: float
    against_full_cfg: Gap
    at_equal_rows: Gap | None
    """Success less that of a coin between the two fixed cuts that cost the same on average."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Every audited source of one gate (or of all, pooled)."""

    family: str
    gate: str | None
    """Version of the gate; None for the pooled report."""
    model_hash: str
    prompts: int
    samples: int
    """Fresh trajectories a prompt."""
    seed: int
    judge: str
    """Language model that perplexity is by."""
    points: tuple[AuditPoint, ...]

    def loss(self, source: str, tail_width: int) -> MeasuredLoss | None:
        """Success of full CFG less that of one arm; None where it was not audited."""
        for point in self.points:
            if (point.source, point.tail_width) == (source, tail_width):
                gap = point.against_full_cfg
                return MeasuredLoss(0.0 - gap.value, 0.0 - gap.high, 0.0 - gap.low, self.prompts * self.samples)
        return None

    def save(self, folder: Path) -> None:
        """Write the report into `folder`, one line a point."""
        content = asdict(self)
        points = ",\n  ".join(json.dumps(point) for point in content.pop("points"))
        head = json.dumps(content, indent=1)[:-2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPORT).write_text(f'{head},\n "points": [\n  {points}\n ]\n}}\n', encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> AuditReport | None:
        """The report in `folder`; None where there is none. Raises `AuditReportError` where it cannot be read."""
        path = folder / REPORT
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            points = tuple(_point(point) for point in content.pop("points"))
            return AuditReport(**content, points=points)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise AuditReportError(f"{path}: cannot be used: {error}; write it again (astargate gate audit)") from None


def reports_in(folders: Iterable[Path]) -> tuple[dict[str, AuditReport], list[str]]:
    """The reports beside the gates of `folders`, by gate version, and why others cannot be used."""
    reports: dict[str, AuditReport] = {}
    refused = []
    for path in (path for folder in folders for path in sorted(folder.glob(f"*/{REPORT}"))):
        try:
            report = AuditReport.load(path.parent)
        except AuditReportError as error:
            refused.append(str(error))
            continue
        if report is not None and report.gate is not None:
            reports.setdefault(report.gate, report)
    return reports, refused


def _point(content: Mapping[str, Any]) -> AuditPoint:
    against, equal = content["against_full_cfg"], content["at_equal_rows"]
    gaps = {"against_full_cfg": Gap(**against), "at_equal_rows": None if equal is None else Gap(**equal)}
    return AuditPoint(**{**content, **gaps})
