"""Fluency: how likely a language model that knows no constraint finds the texts. Never mixed with success.

The shipped judge is a small n-gram model (`artifacts/fluency`), GPT-2 or any causal model from a local folder takes its
place. Figures compare arms under one judge; between judges, tokens differ and so do perplexities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from gate_models.gates.calibrated.files import shipped_file
from gate_models.offline.scorers.ngram import NgramModel, Score

SHIPPED = "shipped n-gram"


class FluencyModel(Protocol):
    """Scores texts one by one: a text's score never depends on the others of the call."""

    name: str

    def score(self, texts: Sequence[str]) -> list[Score]:
        """Negative log-likelihood (nats) and tokens of each text."""
        ...


class NgramJudge:
    """The embedded default."""

    name = SHIPPED

    def __init__(self, model: NgramModel) -> None:
        self._model = model

    def score(self, texts: Sequence[str]) -> list[Score]:
        return self._model.score(texts)


class CausalJudge:
    """A causal language model of transformers from a local folder; never touches the network.

    Each text is scored alone, in float32, after the model's begin-of-text token (GPT-2: end-of-text). Texts beyond
    the model's positions are cut.
    """

    def __init__(self, path: str | Path, device: str = "cpu") -> None:
        """Load the checkpoint. Raises FileNotFoundError without a folder, ValueError without a begin-of-text token."""
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - heavy

        folder = Path(path)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is no folder; give the local path of a causal language model")
        self.name = folder.name
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True)
        self._model = model.float().to(device).eval()
        self._device = device
        begin = self._tokenizer.bos_token_id
        self._begin: int | None = self._tokenizer.eos_token_id if begin is None else begin
        if self._begin is None:
            raise ValueError(f"{folder}: the tokenizer has neither a begin- nor an end-of-text token")
        self._most = int(getattr(model.config, "max_position_embeddings", 1024))

    def score(self, texts: Sequence[str]) -> list[Score]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Score:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"][: self._most - 1]
        if not ids:
            return Score(0.0, 0)
        row = torch.tensor([[self._begin, *ids]], device=self._device)
        with torch.inference_mode():
            logits = self._model(row).logits[0, :-1].float()
        nll = torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum")
        return Score(float(nll), len(ids))


@dataclass(slots=True)
class Fluency:
    """A judge that scores each text once; arms share most of their texts."""

    judge: FluencyModel
    known: dict[str, Score] = field(default_factory=dict)

    def perplexity(self, texts: Sequence[str]) -> float | None:
        """Exponential of the mean negative log-likelihood a token over all texts; None without a token."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(new, self.judge.score(new), strict=True) if new else ())
        scores = [self.known[text] for text in texts]
        tokens = sum(score.tokens for score in scores)
        return math.exp(min(sum(score.nll for score in scores) / tokens, 700.0)) if tokens else None


def artifact_folder() -> Path:
    """Folder of the shipped judge."""
    return shipped_file("fluency")


@cache
def shipped_judge() -> NgramJudge:
    """The judge in `artifacts/fluency`, loaded once."""
    return NgramJudge(NgramModel.load(artifact_folder() / "ngram.npz"))


def load_judge(path: str | Path | None = None, device: str = "cpu") -> FluencyModel:
    """The shipped judge, or the causal model in the folder `path`."""
    return shipped_judge() if path is None else CausalJudge(path, device)


def fluency(judge: FluencyModel, texts: Sequence[str]) -> dict[str, Any]:
    """Per-token NLL over all texts, and its exponential; both None where there is no token."""
    scores = judge.score(texts)
    tokens = sum(score.tokens for score in scores)
    nll = sum(score.nll for score in scores) / tokens if tokens else None
    return {
        "judge": judge.name,
        "nll_per_token": nll,
        "perplexity": None if nll is None else math.exp(min(nll, 700.0)),
    }
