"""Train the shipped sentiment classifier on SST-2: a linear model over hashed n-grams, written as numbers only.

    astargate train sentiment --data DIR --lexicon FILE --out decoding/constraints/data

DIR holds SST-2 as `glue_train`, `glue_dev`, `sentences_train` and `sentences_test` as `.tsv.gz` (label TAB text).
Logistic regression on features scaled by their log-count ratio (Wang and Manning 2012), plus the summed VADER
valences of the words in and out of negation, which are linear in the word features and so fold into their weights.
Platt's scale and offset are fitted on the dev set, on which the few settings below were also chosen; the test set was
used for nothing but the reported figure.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from decoding.constraints.paper.sentiment import HashedSentiment
from decoding.constraints.paper.sentiment_features import BUCKETS, FEATURE_VERSION, bucket, features, word_names, words

SEED: Final = 0
SENTENCE_WEIGHT: Final = 4.0
"""Weight of a whole sentence; a GLUE phrase weighs 1."""
INVERSE_L2: Final = 0.03
VALENCE_SCALE: Final = 0.5
WORD_KINDS: Final = "1n"
"""First characters of the features that are words: plain and negated."""
SMALLEST: Final = 1e-4
"""Weights below this are dropped: together they never move a probability visibly, and zeros compress."""
LICENCES: Final = {
    "SST-2": "no licence stated by Stanford or GLUE; only fitted numbers are shipped, no text",
    "VADER lexicon": "MIT, Copyright (c) 2016 C.J. Hutto; folded into the weights (see LICENSE-VADER-MIT.txt)",
}

Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """Texts with their labels, 1 positive and 0 negative."""

    texts: tuple[str, ...]
    labels: Labels


def read_split(path: Path) -> Split:
    """Read `label TAB text` lines; raises ValueError naming the line that is none."""
    texts, labels = [], []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            label, tab, text = line.rstrip("\n").partition("\t")
            if not tab or label not in ("0", "1"):
                raise ValueError(f"{path.name}, line {number}: expected 0 or 1, a tab and a text")
            texts.append(text.replace("\\/", "/"))
            labels.append(int(label))
    return Split(tuple(texts), np.asarray(labels, dtype=np.int64))


def read_lexicon(path: Path) -> dict[str, float]:
    """VADER's mean valence (-4 to 4) by token."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.split("\t") for line in lines if line.strip()]
    return {row[0]: float(row[1]) for row in rows}


def valence_table(lexicon: dict[str, float], texts: Sequence[str]) -> NDArray[np.float64]:
    """Valences by bucket, [2, BUCKETS]: of plain words, then of negated ones.

    A bucket belongs to the first word that claims it, training words before lexicon words: a lexicon word whose
    bucket is another's is left out, as its valence would be charged to the owner.
    """
    owners: dict[int, str] = {}
    for text in texts:
        for name in sorted(word_names(words(text))):
            if name[0] in WORD_KINDS:
                owners.setdefault(bucket(name), name)
    table = np.zeros((len(WORD_KINDS), BUCKETS))
    for row, kind in enumerate(WORD_KINDS):
        for word, valence in lexicon.items():
            name = kind + word
            if owners.setdefault(bucket(name), name) == name:
                table[row, bucket(name)] = valence * VALENCE_SCALE
    return table


def matrix(texts: Sequence[str], valences: NDArray[np.float64]) -> Any:
    """Sparse [texts, BUCKETS + 2]: binary buckets, then the texts' sums of each row of `valences`."""
    rows = [features(text) for text in texts]
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    binary = sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(texts), BUCKETS))
    return sparse.hstack([binary, sparse.csr_matrix(binary @ valences.T)]).tocsr()


def log_count_ratio(binary: Any, labels: Labels) -> NDArray[np.float64]:
    """Naive Bayes log-count ratio of each bucket, with add-one smoothing."""
    positive = np.asarray(binary[labels == 1].sum(axis=0)).ravel() + 1.0
    negative = np.asarray(binary[labels == 0].sum(axis=0)).ravel() + 1.0
    return np.asarray(np.log((positive / positive.sum()) / (negative / negative.sum())))


def fit(columns: Any, labels: Labels, importance: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Weights over the columns of `matrix` and the intercept."""
    ratio = np.append(log_count_ratio(columns[:, :BUCKETS], labels), [1.0, 1.0])
    model = LogisticRegression(C=INVERSE_L2, max_iter=1000, random_state=SEED)
    model.fit(columns @ sparse.diags(ratio), labels, sample_weight=importance)
    return np.asarray(model.coef_[0] * ratio), float(model.intercept_[0])


def fold(weights: NDArray[np.float64], valences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights over the buckets alone, [BUCKETS]: a valence column is a sum over buckets, so its weight spreads out."""
    return np.asarray(weights[:BUCKETS] + weights[BUCKETS:] @ valences)


def platt(margins: NDArray[np.float64], labels: Labels) -> tuple[float, float]:
    """Scale and offset that make sigmoid(scale * margin + offset) a probability (Platt 1999, smoothed targets)."""
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    high, low = (positives + 1) / (positives + 2), 1 / (negatives + 2)
    target = np.where(labels == 1, high, low)
    doubled = np.concatenate([margins, margins])[:, None]
    classes = np.repeat([1, 0], len(margins))
    model = LogisticRegression(C=np.inf, max_iter=1000)
    model.fit(doubled, classes, sample_weight=np.concatenate([target, 1 - target]))
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def measure(model: HashedSentiment, split: Split) -> dict[str, Any]:
    """Accuracy at 0.5, log loss, Brier score and 10-bin expected calibration error on `split`."""
    probability = model.probability_positive(split.texts)
    labels = split.labels
    bins = np.minimum((probability * 10).astype(int), 9)
    gaps = [abs(float((probability - labels)[bins == b].sum())) for b in range(10)]
    clipped = np.clip(probability, 1e-12, 1 - 1e-12)
    return {
        "n": len(labels),
        "accuracy": round(float(((probability >= 0.5) == labels).mean()), 4),
        "log_loss": round(float(-np.log(np.where(labels == 1, clipped, 1 - clipped)).mean()), 4),
        "brier": round(float(((probability - labels) ** 2).mean()), 4),
        "calibration_error": round(sum(gaps) / len(labels), 4),
    }


def train(data: Path, lexicon_path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of `sentiment.npz` and the card of `sentiment.json`."""
    lexicon = read_lexicon(lexicon_path)
    names = ("glue_train", "sentences_train", "glue_dev", "sentences_test")
    paths = {name: data / f"{name}.tsv.gz" for name in names}
    phrases, sentences, dev, test = (read_split(path) for path in paths.values())
    labels = np.concatenate([phrases.labels, sentences.labels])
    importance = np.concatenate([np.ones(len(phrases.labels)), np.full(len(sentences.labels), SENTENCE_WEIGHT)])
    texts = phrases.texts + sentences.texts
    valences = valence_table(lexicon, texts)
    weights, intercept = fit(matrix(texts, valences), labels, importance)
    folded = fold(weights, valences)
    small = np.where(np.abs(folded) < SMALLEST, 0.0, folded).astype(np.float16)

    margins = np.log(_odds(HashedSentiment(small, 1.0, intercept), dev))
    scale, shift = platt(margins, dev.labels)
    offset = scale * intercept + shift
    model = HashedSentiment(small, scale, offset)
    arrays: dict[str, NDArray[Any]] = {
        "weights": small,
        "scale": np.asarray(scale, dtype=np.float64),
        "offset": np.asarray(offset, dtype=np.float64),
        "feature_version": np.asarray(FEATURE_VERSION, dtype=np.int64),
    }
    card = {
        "model": "logistic regression over hashed word 1-2-grams, negated words and character 3-5-grams; Platt-scaled",
        "features": {"version": FEATURE_VERSION, "buckets": BUCKETS, "non_zero": int(np.count_nonzero(small))},
        "settings": {"seed": SEED, "C": INVERSE_L2, "sentence_weight": SENTENCE_WEIGHT, "valence_scale": VALENCE_SCALE},
        "training_texts": {"glue_train": len(phrases.labels), "sentences_train": len(sentences.labels)},
        "dev": {"data": "glue_dev (settings and Platt scaling chosen on it)", **measure(model, dev)},
        "test": {"data": "sentences_test (held out)", **measure(model, test)},
        "data_sha256": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (*paths.values(), lexicon_path)},
        "licences": LICENCES,
        "versions": {"numpy": np.__version__, "scikit-learn": sklearn.__version__},
    }
    return arrays, card


def _odds(model: HashedSentiment, split: Split) -> NDArray[np.float64]:
    probability = np.clip(model.probability_positive(split.texts), 1e-12, 1 - 1e-12)
    return np.asarray(probability / (1 - probability))


def write_npz(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """`np.savez_compressed` with fixed time stamps: the same arrays give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_DEFLATED, 9)


def write(data: Path, lexicon: Path, out: Path) -> str:
    """Train, write `sentiment.npz` and `sentiment.json` into `out`, and return the accuracies as text."""
    arrays, card = train(data, lexicon)
    out.mkdir(parents=True, exist_ok=True)
    write_npz(out / "sentiment.npz", arrays)
    (out / "sentiment.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return "\n".join(
        f"{split}: accuracy {card[split]['accuracy']:.4f}, Brier {card[split]['brier']:.4f}, n {card[split]['n']}"
        for split in ("dev", "test")
    )
