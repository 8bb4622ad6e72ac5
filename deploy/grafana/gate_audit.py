"""Dashboard "Gate audit": what the gates decide, and whether that does harm."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from deploy.grafana.panels import Query, Row, board, lines, number, rows, states
from deploy.grafana.queries import gauge, increase, quantile, rate, selected, share
from deploy.grafana.savings import GAP_TEXT, gap_lines, handoff_rate
from service.metrics import definitions as define

_STATES = {0: ("active", "green"), 1: ("uncertified", "yellow"), 2: ("suspended", "red")}


def _state_number() -> str:
    """0 active, 1 uncertified, 2 suspended; the worst of the instances."""
    uncertified, suspended = (
        f"max by (family) ({selected(define.GATE_STATE, state=state)})" for state in ("uncertified", "suspended")
    )
    return f"clamp_max(2 * {suspended} + {uncertified}, 2)"


def gate_audit() -> dict[str, Any]:
    """The dashboard."""
    return board(
        "astargate-gate-audit",
        "Gate audit",
        "Gates decide when guidance ends. A family is uncertified until the shadow audit has shown that handing off "
        "costs no more success than the margin; it is suspended (full CFG) once the audit has shown harm.",
        [Row("State", _state()), Row("Decisions", _decisions()), Row("Shadow audit", _audit())],
    )  # fmt: skip


def _state() -> list[Builder[Panel]]:
    return [
        states("Gate state", "State of each family's gate, the worst of all instances.", _STATES,
               Query(_state_number(), "{{family}}")),
        rows("Versions", "Gate version of every instance; they should agree.",
             Query(selected(define.BUILD))),
        number("Suspended families", "Families on full CFG because their audit has shown harm, counted by instance.",
               "short", Query(gauge(define.GATE_STATE, state="suspended"))),
        number("Uncertified families", "Families whose gate the audit has not yet cleared, counted by instance.",
               "short", Query(gauge(define.GATE_STATE, state="uncertified"))),
        number("Handoffs", "Samples whose guidance ended early.", "short",
               Query(increase(define.DECISIONS, decision="handoff"))),
        number("Fallback share", "Samples that no gate served, of all.", "percentunit",
               Query(share(increase(define.FALLBACKS), increase(define.DECISIONS)))),
    ]  # fmt: skip


def _decisions() -> list[Builder[Panel]]:
    return [
        lines("Decisions by source", "What became of guidance, by gate source.", "short",
              Query(f"{rate(define.DECISIONS, 'source', 'decision')} > 0", "{{source}} {{decision}}"), stacked=True),
        lines("Handoff rate", "Share of the samples whose guidance ended early.", "percentunit",
              Query(handoff_rate("family"), "{{family}}"), most=1),
        lines("Fallbacks by family", "Samples a second that no gate served: no_family (the constraint belongs to "
              "none), no_gate, outside_regime (the request differs from what the gate was audited in), suspended, "
              "gate_failed.",
              "short",
              Query(f"{rate(define.FALLBACKS, 'family', 'reason')} > 0", "{{family}} {{reason}}"), stacked=True),
        lines("Gate time", "Wall time of a gate call, all samples due in a step together.", "s",
              Query(quantile(0.5, define.GATE_SECONDS), "p50"), Query(quantile(0.99, define.GATE_SECONDS), "p99")),
    ]  # fmt: skip


def _audit() -> list[Builder[Panel]]:
    return [
        lines("Gap of the present state", "Success of the handoff less that of full CFG from the same state, since the "
              "last suspension or recovery, with its anytime-valid interval; of each source's most audited gate.",
              "percentunit",
              *(Query(selected(define.AUDIT_GAP, bound=bound), f"{{{{family}}}} {{{{source}}}} {bound}")
                for bound in define.AUDIT_GAP.labels["bound"])),
        lines("Gap by family", GAP_TEXT, "percentunit", *gap_lines("family")),
        lines("Pairs by outcome", "Verdict on the handoff, then on the full continuation. Only the discordant ones, "
              "ok_fail and fail_ok, tell the two apart.", "short",
              Query(f"{increase(define.AUDIT_PAIRS, 'outcome')} > 0", "{{outcome}}"), stacked=True),
        lines("Dropped audits", "Audits that were due and not run; many of them bias the gap.", "short",
              Query(increase(define.AUDIT_DROPPED), "dropped")),
        lines("Waiting audits", "Audits in the database that are queued or running, on any server.", "short",
              Query(f"max({selected(define.AUDITS_WAITING)})", "waiting")),
        lines("Rows of audits", "Forward evaluations a second that the audit spends, in rows that nobody else wanted.",
              "short", Query(rate(define.ROWS, purpose="audit"), "rows")),
    ]  # fmt: skip
