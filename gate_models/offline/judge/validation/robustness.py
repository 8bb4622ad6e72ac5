"""Does the judge rank text by people above the same text spoiled? Each way to spoil it has its AUC."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from sklearn.metrics import roc_auc_score

from gate_models.offline.judge.model.files import artifact_folder
from gate_models.offline.judge.validation.spoil import spoiled

KINDS: Final = ("shuffled", "word dropped", "word doubled", "word substituted")


def references() -> list[str]:
    """Shipped references: sentences of CommonGen's dev split; none is in the label sheet."""
    lines = (artifact_folder() / "references.jsonl").read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["text"]) for line in lines]


def robustness(probabilities: Callable[[Sequence[str]], Sequence[float]], texts: Sequence[str]) -> dict[str, float]:
    """AUC of whole texts against spoiled ones, by kind. `probabilities`: a judge's, of texts."""
    whole = list(probabilities(texts))
    right = [1] * len(texts) + [0] * len(texts)
    return {kind: float(roc_auc_score(right, whole + list(probabilities(spoiled(texts, kind))))) for kind in KINDS}
