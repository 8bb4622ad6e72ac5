"""The tables of an audit, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from gate_models.offline.gate_audit.accuracy import Accuracy
from gate_models.offline.gate_audit.results import SourceResult
from gate_models.statistics.intervals import Estimate


def source_table(results: Sequence[SourceResult], width: int, *, fixed: bool = False) -> str:
    """Sources at one tail width; fixed cuts only where asked."""
    lines = [
        "| source | success | 95 % | vs full CFG | vs oracle | vs constant | at equal rows | ppl | repeats | rows "
        "| handed off | differs |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        if result.width != width and result.source != "full_cfg":
            continue
        if result.source == "full_cfg" and result.width not in (1, width):
            continue
        if result.source.startswith("fixed ") is not fixed and result.source != "full_cfg":
            continue
        name = f"full_cfg, K = {result.width}" if result.source == "full_cfg" else result.source
        against = [_contrast(result.against.get(key)) for key in ("full_cfg", "oracle", "constant", "frontier")]
        ppl = "-" if result.perplexity is None else f"{result.perplexity:.0f}"
        lines.append(
            f"| {name} | {result.success.value:.3f} | {result.success.low:.2f}-{result.success.high:.2f} "
            f"| {' | '.join(against)} | {ppl} | {result.repeats:.2f} | {result.rows:.1f} | {result.handed_off:.2f} "
            f"| {result.differs:.2f} |"
        )
    return "\n".join(lines)


def accuracy_table(found: Sequence[Accuracy]) -> str:
    """Cross-validated accuracy by variant."""
    lines = [
        "| variant | prompts | tercile (chance .33) | MAE | MAE of zero | MAE of mean | fate | most frequent fate |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        numbers = (row.tercile, row.error, row.error_of_zero, row.error_of_mean, row.fate, row.fate_of_mode)
        shown = " | ".join("-" if number is None else f"{number:.3f}" for number in numbers)
        lines.append(f"| {row.variant} | {row.prompts} | {shown} |")
    return "\n".join(lines)


def _contrast(found: Estimate | None) -> str:
    return "-" if found is None else found.signed
