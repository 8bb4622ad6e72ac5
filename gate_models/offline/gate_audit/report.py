"""What an audit shows: its tables in Markdown, and the frontier of success and fluency against forward evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gate_models.offline.gate_audit.accuracy import Accuracy
from gate_models.offline.gate_audit.results import SourceResult
from gate_models.offline.runs import markdown
from gate_models.statistics.intervals import Estimate

_MARKS: Final = {
    "oracle": ("*", "black"),
    "constant": ("s", "tab:blue"),
    "raw": ("v", "tab:purple"),
    "policy": ("^", "tab:green"),
    "raw whole-run": ("1", "tab:purple"),
    "policy whole-run": ("2", "tab:green"),
}


def source_table(results: Sequence[SourceResult], width: int, *, fixed: bool = False) -> str:
    """Sources at one tail width; fixed cuts only where asked."""
    heads = (
        *("source", "success", "95 %", "vs full CFG", "vs oracle", "vs constant", "at equal rows", "ppl", "repeats"),
        *("rows", "handed off", "differs"),
    )
    return markdown.table(heads, [_source_row(result) for result in results if _stands(result, width, fixed)])


def _stands(result: SourceResult, width: int, fixed: bool) -> bool:
    """Whether a table at this tail width shows it: full CFG of one position a step stands in every one."""
    if result.source == "full_cfg":
        return result.width in (1, width)
    return result.width == width and result.source.startswith("fixed ") is fixed


def _source_row(result: SourceResult) -> tuple[str, ...]:
    return (
        f"full_cfg, K = {result.width}" if result.source == "full_cfg" else result.source,
        f"{result.success.value:.3f}",
        f"{result.success.low:.2f}-{result.success.high:.2f}",
        *(_contrast(result.against.get(key)) for key in ("full_cfg", "oracle", "constant", "frontier")),
        "-" if result.perplexity is None else f"{result.perplexity:.0f}",
        f"{result.repeats:.2f}",
        f"{result.rows:.1f}",
        f"{result.handed_off:.2f}",
        f"{result.differs:.2f}",
    )


def accuracy_table(accuracies: Sequence[Accuracy]) -> str:
    """Cross-validated accuracy by variant."""
    heads = (
        *("variant", "prompts", "tercile (chance .33)", "MAE", "MAE of zero", "MAE of mean", "fate"),
        "most frequent fate",
    )
    rows = []
    for row in accuracies:
        numbers = (row.tercile, row.error, row.error_of_zero, row.error_of_mean, row.fate, row.fate_of_mode)
        shown = ("-" if number is None else f"{number:.3f}" for number in numbers)
        rows.append((row.variant, str(row.prompts), *shown))
    return markdown.table(heads, rows)


def _contrast(difference: Estimate | None) -> str:
    return "-" if difference is None else difference.signed


def plot(results: Sequence[SourceResult], title: str, path: Path) -> None:
    """Write the PNG: success above, perplexity below; fixed cuts and value prices as lines, the rest as points."""
    widths = sorted({result.width for result in results if result.source.startswith("fixed ")})
    figure = Figure(figsize=(4.2 * max(1, len(widths)), 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, max(1, len(widths)), squeeze=False, sharex=True)
    for column, width in enumerate(widths):
        _panel(axes[0][column], results, width, "success")
        _panel(axes[1][column], results, width, "perplexity")
        axes[0][column].set_title(f"tail width K = {width}")
        axes[1][column].set_xlabel("forward evaluations a text")
        axes[1][column].set_yscale("log")
    axes[0][0].set_ylabel("success (intention-to-treat)")
    axes[1][0].set_ylabel("perplexity")
    axes[0][0].legend(fontsize=7)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _panel(axis: Any, results: Sequence[SourceResult], width: int, what: str) -> None:
    panel = [result for result in results if result.width == width]
    for prefix, label, style in (("fixed ", "fixed cuts", "o-"), ("value ", "value (by price)", "D-")):
        line = sorted((r for r in panel if r.source.startswith(prefix)), key=lambda r: r.rows)
        colour = "tab:blue" if prefix == "fixed " else "tab:red"
        axis.plot([r.rows for r in line], [_of(r, what) for r in line], style, ms=3, lw=1, color=colour, label=label)
    for result in panel:
        if result.source in _MARKS:
            mark, colour = _MARKS[result.source]
            axis.plot(result.rows, _of(result, what), mark, color=colour, ms=8, label=result.source)
        elif result.source.startswith("risk "):
            axis.plot(result.rows, _of(result, what), "P", color="tab:orange", ms=7, label=result.source)
    full = [result for result in results if result.source == "full_cfg"]
    axis.plot(
        [r.rows for r in full],
        [_of(r, what) for r in full],
        "x--",
        color="grey",
        lw=0.7,
        label="full CFG, K = 1, 4, ...",
    )
    axis.grid(alpha=0.3)


def _of(result: SourceResult, what: str) -> float:
    if what == "success":
        return result.success.value
    return float("nan") if result.perplexity is None else result.perplexity
