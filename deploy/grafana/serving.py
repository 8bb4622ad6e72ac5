"""Dashboard "Serving": latency, queue, batches, time outside the model, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from deploy.grafana.panels import Query, Row, board, cells, lines, number, rows
from deploy.grafana.queries import RANGE, RATE, gauge, increase, mean, quantile, rate, selected, share
from service.metrics import definitions as define

_QUANTILES = (0.5, 0.95, 0.99)
_INSTANCE = '{instance=~"$instance"}'


def _quantiles(metric: define.Metric) -> tuple[Query, ...]:
    return tuple(Query(quantile(q, metric), f"p{100 * q:g}") for q in _QUANTILES)


def _failed(how: Callable[..., str] = rate) -> str:
    return share(how(define.REQUESTS, finish_reason="error"), how(define.REQUESTS))


def serving() -> dict[str, Any]:
    """The dashboard."""
    return board(
        "astargate-serving",
        "Serving",
        "How the engine and the server keep up.",
        [Row("In this time range", _numbers()), Row("Latency", _latency()), Row("Queue and batch", _batch()),
         Row("Steps", _steps()), Row("Errors", _errors()), Row("Process", _process())],
    )  # fmt: skip


def _numbers() -> list[Builder[Panel]]:
    p95 = f"histogram_quantile(0.95, {increase(define.REQUEST_SECONDS, 'le', part='_bucket', window=RANGE)})"
    return [
        number("Requests ended", "Admitted requests that ended.", "short", Query(increase(define.REQUESTS))),
        number("Latency p95", "From admission to the end.", "s", Query(p95)),
        number("Errors", "Requests that failed inside the server; cancelled ones and passed deadlines are not "
               "errors.", "percentunit", Query(_failed(increase))),
        number("Rows", "Forward evaluations of every purpose.", "short", Query(increase(define.ROWS))),
    ]  # fmt: skip


def _latency() -> list[Builder[Panel]]:
    return [
        lines("Request duration", "From admission to the end.", "s", *_quantiles(define.REQUEST_SECONDS)),
        lines("Time to first commit", "From admission to the first decided token.", "s",
              *_quantiles(define.FIRST_COMMIT)),
        lines("Queue", "From admission to the first step.", "s", *_quantiles(define.QUEUE_SECONDS)),
        lines("Requests a second by route", "Requests that ended.", "reqps",
              Query(f"{rate(define.REQUESTS, 'route')} > 0", "{{route}}"), stacked=True),
    ]  # fmt: skip


def _batch() -> list[Builder[Panel]]:
    fill = f"{mean(define.STEP_ROWS)} / max({selected(define.STEP_ROWS_LIMIT)})"
    return [
        lines("Requests", "Admitted requests: running ones have taken a step.", "short",
              Query(gauge(define.RUNNING), "running"), Query(gauge(define.WAITING), "waiting"), stacked=True),
        lines("Batch fill", "Mean rows of a step, of the rows that a step may hold (--max-rows).", "percentunit",
              Query(fill, "fill"), most=1),
        cells("Rows in a step", "Steps by their number of rows.", "short",
              Query(increase(define.STEP_ROWS, "le", part="_bucket", window=RATE), "{{le}}")),
        lines("Throughput", "Rows and committed tokens a second.", "short", Query(rate(define.ROWS), "rows"),
              Query(rate(define.COMMITTED), "tokens")),
    ]  # fmt: skip


def _steps() -> list[Builder[Panel]]:
    outside = share(rate(define.STEP_OVERHEAD, part="_sum"), rate(define.STEP_SECONDS, part="_sum"))
    return [
        lines("Step time", "Wall time of an engine step.", "s", *_quantiles(define.STEP_SECONDS)),
        lines("Time outside the model", "Share of the steps' time that is sampling, statistics and bookkeeping.",
              "percentunit", Query(outside, "outside"), most=1),
        lines("Gate calls", "Wall time of a gate call, all samples due in a step together.", "s",
              *_quantiles(define.GATE_SECONDS)),
        lines("Committor rollouts", "Finished rollouts a second.", "short", Query(rate(define.ROLLOUTS), "rollouts")),
    ]  # fmt: skip


def _errors() -> list[Builder[Panel]]:
    return [
        lines("Requests by end", "stop and length are answers; cancelled: the client left or the server shut down; "
              "deadline: deadline_s passed; error: the server failed.", "reqps",
              Query(rate(define.REQUESTS, "finish_reason"), "{{finish_reason}}"), stacked=True),
        lines("Error ratio", "Requests that failed inside the server, of all that ended.", "percentunit",
              Query(_failed(), "errors"), most=1),
        lines("Rejections", "Requests that were not admitted, by reason: queue_full asks for more capacity or a larger "
              "queue.", "reqps", Query(f"{rate(define.REJECTIONS, 'reason')} > 0", "{{reason}}"), stacked=True),
        lines("Connections", "Open connections and --max-connections; waiting ones have sent no whole request.",
              "short", Query(gauge(define.CONNECTIONS, "state"), "{{state}}"),
              Query(gauge(define.CONNECTIONS_LIMIT), "limit")),
        lines("Connections ended early", "By reason: no_room asks for more places; the others are clients that "
              "send too much, too slowly or no HTTP, or that do not read.", "short",
              Query(rate(define.CONNECTIONS_REFUSED, "reason"), "{{reason}}"), stacked=True),
    ]  # fmt: skip


def _process() -> list[Builder[Panel]]:
    return [
        lines("CPU", "Cores in use.", "short",
              Query(f"rate(astargate_process_cpu_seconds_total{_INSTANCE}[{RATE}])", "{{instance}}")),
        lines("Memory", "Resident memory.", "bytes",
              Query(f"astargate_process_resident_memory_bytes{_INSTANCE}", "{{instance}}")),
        rows("Builds", "What every instance serves.", Query(selected(define.BUILD)), width=24),
    ]  # fmt: skip
