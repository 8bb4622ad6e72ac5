"""Small builders over the Grafana SDK: a kind of panel each, with our defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

WIDTH = 24
HEIGHT = 8
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "astargate"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL and the legend of its series."""

    expr: str
    legend: str = ""


def _target(query: Query, index: int, kind: str = "range") -> prometheus.Dataquery:
    target = prometheus.Dataquery().datasource(SOURCE).ref_id(chr(ord("A") + index)).expr(query.expr)
    target.legend_format(query.legend or "__auto")
    if kind == "instant":
        return target.instant().format(prometheus_models.PromQueryFormat.TABLE)
    if kind == "heatmap":
        target.format(prometheus_models.PromQueryFormat.HEATMAP)
    return target.range()


def _common(panel: Any, title: str, text: str, width: int, height: int) -> Any:
    return panel.title(title).description(text).datasource(SOURCE).grid_pos(models.GridPos(h=height, w=width))


def lines(
    title: str, text: str, unit: str, *queries: Query, stacked: bool = False, most: float | None = None, width: int = 12
) -> Builder[models.Panel]:
    """Series over time, stacked where they add up to a whole."""
    panel = _common(timeseries.Panel(), title, text, width, HEIGHT).unit(unit)
    panel.line_width(1).fill_opacity(40 if stacked else 8).show_points(common_models.VisibilityMode.AUTO)
    panel.legend(
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common_models.LegendDisplayMode.TABLE)
        .placement(common_models.LegendPlacement.RIGHT)
        .calcs(["mean", "lastNotNull"])
    )
    panel.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if most is not None:
        panel.max(most)
    for index, query in enumerate(queries):
        panel.with_target(_target(query, index))
    return panel


def number(title: str, text: str, unit: str, query: Query, width: int = 6) -> Builder[models.Panel]:
    """One number over the dashboard's time range."""
    panel = _common(stat.Panel(), title, text, width, 5).unit(unit)
    panel.graph_mode(common_models.BigValueGraphMode.NONE).color_mode(common_models.BigValueColorMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(_target(query, 0, "instant"))


def cells(title: str, text: str, unit: str, query: Query, width: int = 12) -> Builder[models.Panel]:
    """A histogram over time."""
    panel = _common(heatmap.Panel(), title, text, width, HEIGHT).calculate(False)
    panel.y_axis(heatmap.YAxisConfig().unit(unit)).cell_gap(1)
    panel.color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Blues").steps(64))
    return panel.with_target(_target(query, 0, "heatmap"))


def states(title: str, text: str, words: dict[int, tuple[str, str]], query: Query) -> Builder[models.Panel]:
    """A state over time; `words` maps its number to a word and a colour."""
    panel = _common(statetimeline.Panel(), title, text, 12, HEIGHT)
    named = {str(value): models.ValueMappingResult(word, colour) for value, (word, colour) in words.items()}
    return panel.mappings([models.ValueMap(options=named)]).with_target(_target(query, 0))


def rows(title: str, text: str, query: Query, width: int = 12) -> Builder[models.Panel]:
    """A table of series as they are now."""
    return _common(table.Panel(), title, text, width, HEIGHT).with_target(_target(query, 0, "instant"))


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: Sequence[Builder[models.Panel]]


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    variable.multi(True).include_all(True).all_value(".*").refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.current(models.VariableOption(selected=True, text="All", value="$__all")).sort(
        models.VariableSort.ALPHABETICAL_ASC
    )


def board(uid: str, title: str, text: str, content: Sequence[Row]) -> dict[str, Any]:
    """The dashboard as JSON, with the variables datasource, model, instance and family, and links to its siblings."""
    made = dashboard.Dashboard(title).uid(uid).description(text).tags([TAG]).readonly().timezone("browser")
    made.refresh("30s").time("now-1h", "now").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.link(
        dashboard.DashboardLink("astargate dashboards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(_variable("model", "Model", "label_values(astargate_build_info, model)"))
    instances = 'label_values(astargate_build_info{model=~"$model"}, instance)'
    made.with_variable(_variable("instance", "Instance", instances))
    families = 'label_values(astargate_forward_rows_spent_total{instance=~"$instance"}, family)'
    made.with_variable(_variable("family", "Family", families))
    for row in content:
        made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made.with_panel(panel)
    plain: dict[str, Any] = _plain(made.build())
    for number, panel in enumerate(plain["panels"], start=1):
        panel["id"] = number
    return plain


def _plain(value: Any) -> Any:
    """The SDK's objects as JSON's, less what is not set."""
    if hasattr(value, "to_json"):
        return _plain(value.to_json())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
