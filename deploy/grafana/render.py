"""Draws a dashboard's panels from a Prometheus, without Grafana.

`python -m deploy.grafana.render --prometheus http://localhost:9090 --minutes 60 --out savings.png`
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import dates, ticker
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from deploy.grafana.build import FOLDER

COLUMNS, INCHES = 24, 0.55
POINTS = 150
_FORMATS: Mapping[str, ticker.Formatter] = {"percentunit": ticker.PercentFormatter(1.0)}
_MARGINS = (0.10, 0.16, 0.80, 0.66)
"""Left, bottom, width and height of a plot inside its panel."""


@dataclass(frozen=True, slots=True)
class View:
    """Asks one Prometheus for a time range in seconds, with All in every variable."""

    url: str
    start: float
    end: float
    rate: float

    def expression(self, text: str) -> str:
        text = text.replace("$__rate_interval", f"{self.rate:.0f}s")
        text = text.replace("$__range", f"{self.end - self.start:.0f}s")
        for name in ("instance", "family", "model"):
            text = text.replace(f"${name}", ".*")
        return text

    def ask(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        reply = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=60)
        reply.raise_for_status()
        result: list[dict[str, Any]] = reply.json()["data"]["result"]
        return result

    def over_time(self, text: str) -> list[dict[str, Any]]:
        step = max(1.0, (self.end - self.start) / POINTS)
        return self.ask("query_range", query=self.expression(text), start=self.start, end=self.end, step=step)

    def now(self, text: str) -> float:
        samples = self.ask("query", query=self.expression(text), time=self.end)
        return float(samples[0]["value"][1]) if samples else math.nan


def legend(template: str, labels: Mapping[str, str]) -> str:
    """A series' name, as Grafana fills it in."""
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return "" if template == "__auto" else template


def _times(values: list[list[Any]]) -> Any:
    return [dates.date2num(np.datetime64(int(float(moment) * 1000), "ms")) for moment, _ in values]


def draw_lines(axes: Axes, panel: dict[str, Any], view: View) -> None:
    """A time series panel; a stacked one as areas."""
    stacked = panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking", {}).get("mode") == "normal"
    curves = [(target, series) for target in panel["targets"] for series in view.over_time(target["expr"])]
    if not curves:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes, color="grey")
        return
    names = [legend(target["legendFormat"], series["metric"]) for target, series in curves]
    if stacked:
        moments = sorted({moment for _, series in curves for moment, _ in series["values"]})
        table = [dict(series["values"]) for _, series in curves]
        heights = np.nan_to_num([[float(row.get(moment, 0)) for moment in moments] for row in table])
        axes.stackplot(_times([[moment, 0] for moment in moments]), heights, labels=names, alpha=0.7)
    else:
        for name, (_, series) in zip(names, curves, strict=True):
            values = [float(value) for _, value in series["values"]]
            axes.plot(_times(series["values"]), values, label=name, lw=1.3, marker="." if len(values) < 8 else None)
    if any(names):
        axes.legend(fontsize=6, ncols=2, loc="best", framealpha=0.6)


def draw_cells(axes: Axes, panel: dict[str, Any], view: View) -> None:
    """A heatmap of a cumulative histogram."""
    buckets = view.over_time(panel["targets"][0]["expr"])
    ordered = sorted(buckets, key=lambda series: float(series["metric"]["le"]))
    moments = sorted({moment for series in ordered for moment, _ in series["values"]})
    table = [dict(series["values"]) for series in ordered]
    cumulative = np.nan_to_num([[float(row.get(moment, 0)) for moment in moments] for row in table])
    cells = np.diff(cumulative, axis=0, prepend=0)
    axes.pcolormesh(_times([[m, 0] for m in moments]), np.arange(len(ordered)), cells, cmap="Blues", shading="nearest")
    axes.set_yticks(range(len(ordered)), [series["metric"]["le"] for series in ordered], fontsize=6)


def draw_number(axes: Axes, panel: dict[str, Any], view: View) -> None:
    value = view.now(panel["targets"][0]["expr"])
    percent = panel["fieldConfig"]["defaults"].get("unit") == "percentunit"
    text = "no data" if math.isnan(value) else f"{value:.1%}" if percent else f"{value:,.0f}"
    axes.text(0.5, 0.4, text, ha="center", va="center", fontsize=22, color="#1f60c4")
    axes.set_axis_off()


def draw_rows(axes: Axes, panel: dict[str, Any], view: View) -> None:
    samples = view.ask("query", query=view.expression(panel["targets"][0]["expr"]), time=view.end)
    lines = [", ".join(f"{name}: {value}" for name, value in sorted(series["metric"].items())) for series in samples]
    axes.text(0, 0.9, "\n".join(lines), va="top", fontsize=8, transform=axes.transAxes)
    axes.set_axis_off()


_WITHOUT_TIME: Final = {"stat": draw_number, "table": draw_rows}


def _plain_axes(axes: Axes, panel: dict[str, Any], view: View) -> None:
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    if panel["type"] == "timeseries":
        axes.grid(alpha=0.25)
        axes.yaxis.set_major_formatter(_FORMATS.get(unit, ticker.ScalarFormatter()))
        axes.set_ylabel({"rowsps": "rows/s", "reqps": "requests/s", "s": "seconds"}.get(unit, ""), fontsize=7)
    axes.set_xlim(*_times([[view.start, 0], [view.end, 0]]))
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S"))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.tick_params(labelsize=6)


def render(board: dict[str, Any], view: View, out: Path) -> None:
    """Write the picture of a dashboard, its panels placed as Grafana places them."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) + 1
    figure = plt.figure(figsize=(COLUMNS * INCHES, height * INCHES * 0.62), dpi=100)
    figure.text(0.01, 1 - 0.6 / height, board["title"], fontsize=15, weight="bold")
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        bottom, tall = 1 - (place["y"] + 1 + place["h"]) / height, place["h"] / height
        if panel["type"] == "row":
            figure.text(0.01, bottom + 0.3 * tall, panel["title"], fontsize=11, color="#444")
            continue
        x, y, w, h = _MARGINS
        axes = figure.add_axes((left + x * width, bottom + y * tall, w * width, h * tall))
        axes.set_title(panel["title"], fontsize=9, loc="left")
        if panel["type"] in _WITHOUT_TIME:
            _WITHOUT_TIME[panel["type"]](axes, panel, view)
            continue
        (draw_cells if panel["type"] == "heatmap" else draw_lines)(axes, panel, view)
        _plain_axes(axes, panel, view)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--dashboard", default="savings", choices=("savings", "serving"))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate-seconds", type=float, default=60, help="window of rates: four scrape intervals or more")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    board = json.loads((FOLDER / f"{options.dashboard}.json").read_text(encoding="utf-8"))
    end = time.time()
    view = View(options.prometheus, end - 60 * options.minutes, end, options.rate_seconds)
    render(board, view, options.out)


if __name__ == "__main__":
    main()
