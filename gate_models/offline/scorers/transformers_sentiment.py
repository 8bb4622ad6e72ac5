"""Any transformers sequence classifier as the sentiment scorer of `decoding.constraints`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class TransformersSentiment:
    """P(positive) from a local sequence-classification checkpoint; never touches the network.

    The positive class is taken from the model's `id2label` (a label that reads "positive", case ignored), or is
    `positive_label` where the labels say nothing. One text is scored at a time, in float32 and without padding, so
    that a text's probability never depends on the others of the call.
    """

    def __init__(
        self, path: str | Path, *, positive_label: int | None = None, device: str = "cpu", max_tokens: int = 512
    ) -> None:
        """Load the checkpoint in the folder `path`.

        Raises FileNotFoundError when there is no such folder, and ValueError when it has fewer than two labels, no
        recognisable positive label, or `positive_label` is out of range.
        """
        from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415 - heavy

        folder = Path(path)
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} is no folder; give the local path of a sequence-classification checkpoint"
            )
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        model: Any = AutoModelForSequenceClassification.from_pretrained(str(folder), local_files_only=True)
        self._model = model.float().to(device).eval()
        self._device = device
        self._max_tokens = min(max_tokens, int(getattr(model.config, "max_position_embeddings", max_tokens)))
        self._positive = _positive_index(dict(model.config.id2label), positive_label)
        self._lock = Lock()  # fast tokenizers change their truncation state while they encode

    def probability_positive(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """P(positive) of each text, shape [len(texts)]; texts beyond the model's positions are cut."""
        return np.asarray([self._one(text) for text in texts], dtype=np.float64)

    def _one(self, text: str) -> float:
        with self._lock, torch.inference_mode():
            encoded = self._tokenizer(text, truncation=True, max_length=self._max_tokens, return_tensors="pt")
            logits = self._model(**encoded.to(self._device)).logits[0].double()
            return float(torch.softmax(logits, dim=-1)[self._positive])


def _positive_index(labels: dict[int, str], chosen: int | None) -> int:
    if len(labels) < 2:
        raise ValueError(f"a sentiment classifier needs two labels or more, this one has {len(labels)}")
    if chosen is not None:
        if chosen not in labels:
            raise ValueError(f"positive_label {chosen} is none of the model's labels {sorted(labels)}")
        return chosen
    named = [index for index, label in labels.items() if str(label).strip().lower() in ("positive", "pos")]
    if len(named) != 1:
        raise ValueError(f"cannot tell the positive label from {labels}; pass positive_label")
    return named[0]
