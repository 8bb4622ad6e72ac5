"""The report of a fit as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gate_models.offline.judge.model.features import SAID
from gate_models.offline.judge.validation.agreement import Agreement
from gate_models.offline.judge.validation.results import JudgeStudy
from gate_models.offline.runs.markdown import table

_HEADS = ("texts", "reader", "judge", "AUC", "kappa")
_LABELS = ("clean", "acceptable", "broken")


def markdown(study: JudgeStudy) -> str:
    """The whole report."""
    parts = [
        "# The judge of readability",
        "Written by `astargate judge-fit`. What the labels mean and how the judge works: [docs/judge.md](../judge.md).",
        "## Labels",
        _labels(study),
        "## Agreement with the reader, cross-validated",
        "Ten folds, repeated. A text counts as accepted where most of its labels are *clean* or *acceptable*. "
        "The threshold is chosen inside the folds. Shares are of accepted texts.",
        _table("", study.overall),
        "### By family (our texts)",
        _table("family", study.families),
        "### By policy (our texts)",
        _table("policy", study.policies),
        "## The judge",
        _weights(study),
        "## Other features (cross-validated)",
        _variants(study),
        "## Text by people, whole and spoiled",
        _robust(study),
        "## Made with",
        _facts(study),
    ]
    return "\n\n".join(parts) + "\n"


def _labels(study: JudgeStudy) -> str:
    rows = [(name, *(f"{shares[label]:.3f}" for label in _LABELS)) for name, shares in study.labels.items()]
    lines = [table(("", *_LABELS), rows)]
    for name, agreed in study.passes.items():
        lines.append(
            f"\n{name}: kappa {agreed['kappa']:.2f} over the three labels, {agreed['kappa_accepted']:.2f} over "
            f"accepted or not ({agreed['texts']:.0f} texts)."
        )
    return "\n".join(lines)


def _table(name: str, rows: Mapping[str, Agreement]) -> str:
    return table((name, *_HEADS), [(key, *_cells(value)) for key, value in rows.items()])


def _cells(value: Agreement) -> tuple[str, ...]:
    shares = f"{value.reader:.3f}", f"{value.judge:.3f}"
    return str(value.texts), *shares, _figure(value.auc, 3), _figure(value.kappa, 2)


def _figure(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _weights(study: JudgeStudy) -> str:
    learned = study.weights
    rows = zip(learned.features, learned.weight, learned.mean, learned.deviation, strict=True)
    cells = [
        (name, f"{weight:+.2f}", f"{mean:.3g}", f"{deviation:.3g}", SAID[name])
        for name, weight, mean, deviation in sorted(rows, key=lambda row: -abs(row[1]))
    ]
    tail = f"\n\nIntercept {learned.intercept:+.2f}, threshold {learned.threshold:g}. Features are standardised."
    return table(("feature", "weight", "mean", "deviation", "what it is"), cells) + tail


def _variants(study: JudgeStudy) -> str:
    chosen = {"all": study.overall["all texts"], "ours": study.overall["our texts"]}
    rows = []
    for name, agreed in {"**the judge**": chosen, **study.variants}.items():
        figures = [(_figure(agreed[group].auc, 3), _figure(agreed[group].kappa, 2)) for group in ("all", "ours")]
        rows.append((name, *figures[0], *figures[1]))
    return table(("features", "AUC", "kappa", "AUC, ours", "kappa, ours"), rows)


def _robust(study: JudgeStudy) -> str:
    rows = [(kind, f"{value:.3f}") for kind, value in study.robust.items()]
    tail = f"\n\nOf the whole references the judge finds {study.references:.3f} readable."
    return table(("spoiled", "AUC of the whole above the spoiled"), rows) + tail


def _facts(study: JudgeStudy) -> str:
    facts = study.facts
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return "\n".join(
        [
            f"* sheet {facts['sheet']}, labels {facts['labels']}",
            f"* language model {facts['language_model']} ({facts['computed_with']})",
            f"* models whose texts were read: {', '.join(facts['models_read']) or 'none'}",
            f"* {versions}",
        ]
    )
