"""PromQL from the metric definitions, for the instances and families that a dashboard's variables select."""

from __future__ import annotations

import re
from collections.abc import Iterable

from service.metrics.definitions import METRICS, PREFIX, Metric

RATE = "$__rate_interval"
RANGE = "$__range"
NAME = re.compile(rf"(?<![\w:\"']){PREFIX}[_:][\w:]+")
_PROCESS = ("cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "start_time_seconds", "open_fds")


def known_names() -> set[str]:
    """Every series that the service exposes."""
    process = {f"{PREFIX}_process_{name}" for name in _PROCESS}  # of `prometheus_client.ProcessCollector`
    return process | {name for metric in METRICS for name in metric.exposed}


def unknown_names(expressions: Iterable[str], recorded: Iterable[str] = ()) -> list[str]:
    """Names in PromQL that neither the service exposes nor a recording rule makes."""
    known = known_names() | set(recorded)
    return sorted({name for text in expressions for name in NAME.findall(text)} - known)


def selected(metric: Metric, series: str = "", **where: str) -> str:
    """The series of the chosen instances and families: the metric's first, unless another is named."""
    unknown = set(where) - set(metric.labels)
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")
    matchers = ['instance=~"$instance"']
    if "family" in metric.labels:
        matchers.append('family=~"$family"')
    matchers += [f'{label}="{value}"' for label, value in where.items()]
    return f"{series or metric.exposed[0]}{{{', '.join(matchers)}}}"


def _part(metric: Metric, part: str) -> str:
    return f"{PREFIX}_{metric.name}{part}" if part else ""


def _sum(metric: Metric, by: tuple[str, ...], inner: str) -> str:
    unknown = set(by) - {*metric.labels, "instance", "le"}
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def rate(metric: Metric, *by: str, part: str = "", **where: str) -> str:
    """Events a second; `part` is "_sum", "_count" or "_bucket" of a histogram."""
    return _sum(metric, by, f"rate({selected(metric, _part(metric, part), **where)}[{RATE}])")


def increase(metric: Metric, *by: str, part: str = "", window: str = RANGE, **where: str) -> str:
    """Events in a window; without one, in the dashboard's time range."""
    return _sum(metric, by, f"increase({selected(metric, _part(metric, part), **where)}[{window}])")


def gauge(metric: Metric, *by: str, **where: str) -> str:
    """A gauge, summed over what is not named."""
    return _sum(metric, by, selected(metric, **where))


def quantile(share: float, metric: Metric) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share:g}, {rate(metric, 'le', part='_bucket')})"


def mean(metric: Metric) -> str:
    """Mean of what a histogram has seen."""
    return f"{rate(metric, part='_sum')} / {rate(metric, part='_count')}"


def share(part: str, whole: str) -> str:
    """A ratio, where there is a whole: nothing stands for 0/0."""
    return f"{part} / ({whole} > 0)"
