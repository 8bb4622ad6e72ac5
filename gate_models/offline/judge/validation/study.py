"""`astargate judge-fit`: the judge of a labelled sheet, its agreement with the reader, and the report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import sklearn
import torch
import transformers
from numpy.typing import NDArray

from gate_models.offline.judge.labels.sheet import Label, SheetText, file_hash, read_labels, read_sheet
from gate_models.offline.judge.model.cache import Cached
from gate_models.offline.judge.model.features import END, FEATURES, PLAIN, SAID, matrix
from gate_models.offline.judge.model.files import artifact_folder
from gate_models.offline.judge.model.judge import Judge
from gate_models.offline.judge.model.language_model import LanguageModel, SmolLM2, weights_hash
from gate_models.offline.judge.model.probe import probe_hash, shipped_probe
from gate_models.offline.judge.validation.agreement import Agreement, Verdicts, accepted, agreement, between_passes
from gate_models.offline.judge.validation.fit import REPEATS, Matrix, States, cross_validate, fit
from gate_models.offline.judge.validation.report import markdown
from gate_models.offline.judge.validation.results import HUMAN, OUR_TEXTS, JudgeStudy
from gate_models.offline.judge.validation.robustness import references, robustness

MEASURED: Final = tuple(name for name in SAID if name != END)


def run(
    *,
    sheet: Path | None = None,
    labels: Path | None = None,
    out: Path | None = None,
    cache: Path | None = None,
    model: LanguageModel | None = None,
) -> str:
    """Fit, measure, write the judge, and return the report. Raises `ValueError` where labels are missing."""
    sheet = sheet or artifact_folder() / "sheet.jsonl"
    labels = labels or sheet.with_name("labels.jsonl")
    texts, said = read_sheet(sheet), read_labels(labels)
    hashed = weights_hash() if model is None else model.name
    reader: LanguageModel = SmolLM2() if model is None else model
    reader = reader if cache is None else Cached(reader, cache)
    facts = {
        "sheet": file_hash(sheet),
        "labels": file_hash(labels),
        "language_model": hashed,
        "probe": probe_hash(shipped_probe()),
        "computed_with": reader.name,
        "models_read": sorted({text.model for text in texts if text.model}),
        "versions": {
            "python": platform.python_version(),
            "scikit-learn": sklearn.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    result = study(texts, said, reader, facts)
    result.weights.save(out or artifact_folder() / "judge.json", {**facts, **_figures(result)})
    return markdown(result)


def study(texts: Sequence[SheetText], said: Sequence[Label], model: LanguageModel, facts: dict[str, Any]) -> JudgeStudy:
    """Everything but the files."""
    votes = accepted(said)
    missing = [text.id for text in texts if text.id not in votes]
    if missing:
        raise ValueError(f"{len(missing)} texts have no label yet ({missing[0]}); go on with astargate label")
    target = np.array([votes[text.id] for text in texts])
    ours = np.array([text.source == "ours" for text in texts])
    everything, ends = matrix([text.text for text in texts], model, MEASURED)
    seen = everything[:, _columns(FEATURES)]
    probabilities, decided = cross_validate(seen, target, _strata(target, ours), ends=ends)
    weights = fit(seen, target, (*FEATURES, END), ends=ends)
    judge = Judge(weights, model)

    def within(mask: Verdicts) -> Agreement:
        return agreement(target[mask], probabilities[:, mask], decided[:, mask])

    own = [text for text in texts if text.source == "ours"]
    human = references()
    return JudgeStudy(
        weights=weights,
        overall={"all texts": within(np.ones_like(ours)), OUR_TEXTS: within(ours), HUMAN: within(~ours)},
        families=_by(texts, "family", sorted({text.family for text in own}), within),
        policies=_by(texts, "policy", sorted({text.policy for text in own}), within),
        variants=_variants(everything, ends, target, ours),
        passes=between_passes(said),
        labels=_label_shares(texts, said),
        robust=robustness(lambda some: judge.probabilities(some).tolist(), human),
        references=float(np.mean([reading.readable for reading in judge.readable(human)])),
        facts=facts,
    )


def _columns(names: Sequence[str]) -> list[int]:
    return [MEASURED.index(name) for name in names]


def _strata(target: Verdicts, ours: Verdicts) -> NDArray[np.int64]:
    return target.astype(np.int64) * 2 + ours


def _by(texts: Sequence[SheetText], key: str, values: list[str], within: Any) -> dict[str, Agreement]:
    return {value: within(np.array([getattr(text, key) == value for text in texts])) for value in values}


def _variants(everything: Matrix, ends: States, target: Verdicts, ours: Verdicts) -> dict[str, dict[str, Agreement]]:
    """The judge without each feature, without the state at the end, with the plain four alone, and perplexity alone."""
    sets = {
        "mean surprisal alone (perplexity)": ("mean",),
        "the plain four": PLAIN,
        "without end": FEATURES,
        **{f"without {name}": tuple(other for other in FEATURES if other != name) for name in FEATURES},
    }
    variants = {}
    for name, kept in sets.items():
        states = ends if len(kept) == len(FEATURES) - 1 and kept != PLAIN else None
        columns = everything[:, _columns(kept)]
        p, d = cross_validate(columns, target, _strata(target, ours), min(REPEATS, 2), states)
        variants[name] = {
            "all": agreement(target, p, d),
            "ours": agreement(target[ours], p[:, ours], d[:, ours]),
        }
    return variants


def _label_shares(texts: Sequence[SheetText], said: Sequence[Label]) -> dict[str, dict[str, float]]:
    sources = {text.id: text.source for text in texts}
    shares: dict[str, dict[str, float]] = {}
    for source, name in (("ours", OUR_TEXTS), ("human", HUMAN)):
        own = [label.label for label in said if sources.get(label.id) == source]
        if own:
            shares[name] = {label: own.count(label) / len(own) for label in ("clean", "acceptable", "broken")}
    return shares


def _figures(result: JudgeStudy) -> dict[str, Any]:
    """What the judge's file says of itself."""
    return {
        "cross_validated": {name: asdict(value) for name, value in result.overall.items()},
        "robustness_auc": result.robust,
        "references_readable": result.references,
    }
