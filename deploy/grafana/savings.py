"""Dashboard "Forward-evaluation savings": what handing off saves, and what it costs in success."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from deploy.grafana.panels import Query, Row, board, cells, lines, number
from deploy.grafana.queries import RATE, increase, rate, share
from service.metrics import definitions as define

_Z = 1.96


def _kept(*by: str, how: Callable[..., str] = rate) -> tuple[str, str]:
    """Rows saved, and the rows of full CFG that they are a part of."""
    equivalent = how(define.EQUIVALENT, *by)
    return f"({equivalent} - {how(define.SPENT, *by)} - {how(define.SKIPPED, *by)})", equivalent


def saved_share(*by: str, how: Callable[..., str] = rate) -> str:
    """Rows saved as a share of full CFG's."""
    return share(*_kept(*by, how=how))


def success(*by: str, how: Callable[..., str] = rate) -> str:
    """Share of the texts with a constraint that meet it."""
    return share(how(define.OUTCOMES, *by, outcome="satisfied"), how(define.OUTCOMES, *by))


def handoff_rate(*by: str) -> str:
    """Share of the samples in which guidance was on and ended early."""
    return share(rate(define.DECISIONS, *by, decision="handoff"), rate(define.DECISIONS, *by))


def audit_gap(*by: str, side: int = 0) -> str:
    """Success of the handoff minus that of the full continuation, paired; `side` -1 and 1 are the ends of Agresti and
    Min's 95 % interval for a paired difference of proportions.
    """
    pairs = f"({increase(define.AUDIT_PAIRS, *by)} > 0)"
    better, worse = (increase(define.AUDIT_PAIRS, *by, outcome=outcome) for outcome in ("ok_fail", "fail_ok"))
    if not side:
        return f"({better} - {worse}) / {pairs}"
    spread = f"sqrt({better} + {worse} + 1 - ({better} - {worse}) ^ 2 / ({pairs} + 2))"
    return f"({better} - {worse} {'+' if side > 0 else '-'} {_Z} * {spread}) / ({pairs} + 2)"


def gap_lines(*by: str) -> tuple[Query, ...]:
    """The audit's gap with both ends of its interval."""
    name = "{{family}} " if by else ""
    return (
        Query(audit_gap(*by), f"{name}gap"),
        Query(audit_gap(*by, side=-1), f"{name}lower end"),
        Query(audit_gap(*by, side=1), f"{name}upper end"),
    )


GAP_TEXT = (
    "Shadow audit: success of handed-off samples minus that of the full-CFG continuation from the very same state, "
    "over the time range, with a pointwise 95 % interval (Agresti and Min). Below 0 the handoff harms. The server's "
    "own verdict, which suspends a family, uses an anytime-valid bound and is the gate's state."
)


def savings() -> dict[str, Any]:
    """The dashboard."""
    return board(
        "astargate-savings",
        "Forward-evaluation savings",
        "Forward evaluations (rows through the model) against full CFG, which costs 2T rows a sample. A saving counts "
        "only beside success; rows that an end-of-text made unnecessary are never part of it.",
        [Row("In this time range", _numbers()), Row("Where rows go", _rows()), Row("Saved against full CFG", _saved()),
         Row("Handoff", _handoff()), Row("Success", _success()), Row("Where savings are lost", _lost())],
    )  # fmt: skip


def _numbers() -> list[Builder[Panel]]:
    saved, _ = _kept(how=increase)
    return [
        number("Saved share", "Rows saved as a share of what full CFG would have cost; negative where policies cost "
               "more.", "percentunit", Query(saved_share(how=increase))),
        number("Rows saved", "Rows of full CFG less rows spent, end-of-text skips apart.", "short", Query(saved)),
        number("Rows spent", "Forward evaluations of answered samples.", "short", Query(increase(define.SPENT))),
        number("Success", "Share of texts with a constraint that meet it.", "percentunit",
               Query(success(how=increase))),
    ]  # fmt: skip


def _rows() -> list[Builder[Panel]]:
    return [
        lines("Rows by phase", "A guided step costs two rows, a base step one.", "rowsps",
              Query(f"2 * {rate(define.STEPS, phase='guided')}", "guided"),
              Query(rate(define.STEPS, phase="base"), "base"), stacked=True),
        lines("Rows by purpose", "Rows by branch and by what they were run for.", "rowsps",
              Query(f"{rate(define.ROWS, 'purpose', 'branch')} > 0", "{{purpose}} {{branch}}"), stacked=True),
        lines("Rows that bought nothing", "Rows of failed and cancelled samples, and rows that only filled a tile "
              "(invariant mode).", "rowsps",
              Query(rate(define.ABANDONED), "abandoned"), Query(rate(define.PADDING), "padding")),
        lines("Rows skipped after an end-of-text", "Counted apart from savings.", "rowsps",
              Query(f"{rate(define.SKIPPED, 'family')} > 0", "{{family}}")),
    ]  # fmt: skip


def _saved() -> list[Builder[Panel]]:
    panels = []
    for by in ("family", "policy"):
        saved, _ = _kept(by)
        traffic = f"({rate(define.EQUIVALENT, by)} > 0)"
        panels += [
            lines(f"Saved share by {by}", "Rows saved as a share of full CFG's, of the samples answered.",
                  "percentunit", Query(saved_share(by), f"{{{{{by}}}}}"), most=1),
            lines(f"Rows saved a second by {by}", "What other requests can be served with. Negative: costs more than "
                  "full CFG.", "rowsps", Query(f"{saved} and {traffic}", f"{{{{{by}}}}}")),
        ]  # fmt: skip
    return panels


def _handoff() -> list[Builder[Panel]]:
    return [
        cells("Handoff fraction", "At which fraction of the steps guidance ended, samples in each interval.",
              "percentunit", Query(increase(define.HANDOFF, "le", part="_bucket", window=RATE), "{{le}}")),
        lines("Handoff rate", "Share of the samples whose guidance ended early; the rest ran full CFG, or base from "
              "the start.", "percentunit", Query(handoff_rate("family"), "{{family}}"), most=1),
    ]  # fmt: skip


def _success() -> list[Builder[Panel]]:
    return [
        lines("Success by policy", "Share of the texts with a constraint that meet it.", "percentunit",
              Query(success("policy"), "{{policy}}"), most=1),
        lines("Shadow-audit gap", GAP_TEXT, "percentunit", *gap_lines()),
    ]  # fmt: skip


def _lost() -> list[Builder[Panel]]:
    return [
        lines("Evidence of the gates", "Samples a second by what is known of the gate that decided (audited in the "
              "very setting, pooled over many settings, none) and by what became of guidance.", "short",
              Query(f"{rate(define.EVIDENCE, 'evidence', 'decision')} > 0", "{{evidence}} {{decision}}"), stacked=True),
        lines("Fallback reasons", "Samples a second that no gate of their own served, so that they ran what "
              "on_fallback says (the pooled drained gate by default, full CFG where it is withheld).", "short",
              Query(f"{rate(define.FALLBACKS, 'reason')} > 0", "{{reason}}"), stacked=True),
        lines("Repair rounds", "Rounds a second of reopening a text that failed its constraint, by selector and "
              "result.", "short",
              Query(f"{rate(define.REPAIRS, 'selector', 'outcome')} > 0", "{{selector}} {{outcome}}"), stacked=True),
    ]  # fmt: skip
