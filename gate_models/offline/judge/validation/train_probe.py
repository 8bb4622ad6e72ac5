"""Train the probe: sentences by people against the same kind of sentences spoiled, and against texts of the model.

`python -m gate_models.offline.judge.validation.train_probe --data DIR --own TEXTS.jsonl` writes `probe.npz` and its
card. `--own` is a sheet (`astargate judge-sheet`) whose texts of the model need no labels. Texts of the label sheet are
left out.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor
from tqdm import tqdm

from gate_models.offline.judge.labels.human_text import human_sentences
from gate_models.offline.judge.labels.sheet import read_sheet
from gate_models.offline.judge.model.files import artifact_folder
from gate_models.offline.judge.model.language_model import SmolLM2, batches
from gate_models.offline.judge.model.probe import WIDTH, Probe, probe_hash
from gate_models.offline.judge.model.unigrams import shipped_unigrams
from gate_models.offline.judge.validation.spoil import SPOILS, spoiled

HUMAN: Final = {"commongen": 800, "coco": 400, "tinystories": 700, "tatoeba": 500}
SPOILED: Final = {"commongen": 75, "coco": 35, "tinystories": 60, "tatoeba": 30}
"""Sentences by people of each source; to be spoiled, so many for each way."""
HELD_OUT: Final = 0.1
EPOCHS: Final = 15
BATCH: Final = 64
OWN_WEIGHT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Padded:
    """Texts [B, T]: states [B, T, d] in half precision, surprisals, unigram surprisals, and which tokens are real."""

    states: Tensor
    nats: Tensor
    unigrams: Tensor
    real: Tensor

    def logits(self, probe: Probe, rows: Tensor) -> Tensor:
        width = int(self.real[rows].sum(1).max())
        odd = probe(*(part[rows, :width] for part in (self.states, self.nats, self.unigrams)))
        return probe.pooled(odd, self.real[rows, :width])


def corpus(data: Path, own: list[str], forbidden: set[str], seed: int) -> list[tuple[str, str]]:
    """Kind (`human`, `own`, or a way to spoil) and text."""
    rng, sources = random.Random(seed), dict[str, list[str]]()
    for source, _, text in human_sentences(data):
        if text not in forbidden:
            sources.setdefault(source, []).append(text)
    items = [("human", text) for source, count in HUMAN.items() for text in rng.sample(sources[source], count)]
    for kind in SPOILS:
        whole = [text for source, count in SPOILED.items() for text in rng.sample(sources[source], count)]
        items += [(kind, text) for text in spoiled(whole, kind, seed)]
    items += [("own", text) for text in own if text not in forbidden]
    rng.shuffle(items)
    return items


def read(model: SmolLM2, texts: list[str]) -> Padded:
    """Run the language model over all texts once."""
    encoded = [model.ids(text) for text in texts]
    width = max(len(ids) for ids in encoded)
    states = torch.zeros(len(texts), width, WIDTH, dtype=torch.float16)
    nats, unigrams = torch.zeros(len(texts), width), torch.zeros(len(texts), width)
    table = torch.from_numpy(shipped_unigrams())
    for rows in tqdm(list(batches([len(ids) for ids in encoded])), unit="batch"):
        tokens = model.tokens([encoded[row] for row in rows])
        parts = zip(
            *(torch.split(part, tokens.lengths) for part in (tokens.states, tokens.nats, tokens.ids)), strict=True
        )
        for row, (state, nat, ids) in zip(rows, parts, strict=True):
            states[row, : len(ids)], nats[row, : len(ids)], unigrams[row, : len(ids)] = state.half(), nat, table[ids]
    lengths = torch.tensor([len(ids) for ids in encoded])
    return Padded(states, nats, unigrams, torch.arange(width)[None] < lengths[:, None])


def train(seen: Padded, human: Tensor, weight: Tensor, rows: Tensor, seed: int) -> Probe:
    """Logistic loss of `human` [B]; the rate falls to nothing."""
    torch.manual_seed(seed)
    probe = Probe()
    optimizer = torch.optim.AdamW(probe.parameters(), lr=2e-3, weight_decay=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, EPOCHS * (len(rows) // BATCH + 1))
    for _ in range(EPOCHS):
        for batch in torch.split(rows[torch.randperm(len(rows))], BATCH):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                seen.logits(probe, batch), human[batch], weight=weight[batch]
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rate.step()
    return probe.eval().requires_grad_(False)


def held_out_auc(logits: NDArray[np.float32], kinds: list[str]) -> dict[str, float]:
    """Text by people above each other kind."""
    aucs = {}
    for kind in sorted(set(kinds) - {"human"}):
        mask = np.array([one in ("human", kind) for one in kinds])
        right = np.array([one == "human" for one in kinds])[mask]
        aucs[kind] = round(float(roc_auc_score(right, logits[mask])), 4)
    return aucs


def main(data: Path, own: Path, out: Path, seed: int) -> dict[str, Any]:
    """Train, measure, write."""
    sheet = {text.text for text in read_sheet(artifact_folder() / "sheet.jsonl")}
    theirs = read_sheet(own)
    items = corpus(data, [text.text for text in theirs], sheet, seed)
    kinds = [kind for kind, _ in items]
    model = SmolLM2(probe=None)
    seen = read(model, [text for _, text in items])
    human = torch.tensor([float(kind == "human") for kind in kinds])
    weight = torch.tensor([OWN_WEIGHT if kind == "own" else 1.0 for kind in kinds])
    cut = int(len(items) * HELD_OUT)
    probe = train(seen, human, weight, torch.arange(cut, len(items)), seed)
    with torch.inference_mode():
        logits = torch.cat([seen.logits(probe, rows) for rows in torch.split(torch.arange(cut), BATCH)]).numpy()
    probe.save(out)
    card = {
        "probe": probe_hash(probe),
        "language_model": model.name,
        "seed": seed,
        "texts": {kind: kinds.count(kind) for kind in ("human", "own", *SPOILS)},
        "own_models": sorted({text.model for text in theirs}),
        "held_out_auc": held_out_auc(logits, kinds[:cut]),
    }
    out.with_suffix(".json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return card


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds commongen/ and corpus/")
    parser.add_argument("--own", type=Path, required=True, help="sheet with unlabelled texts of the model")
    parser.add_argument("--out", type=Path, default=artifact_folder() / "probe.npz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(json.dumps(main(given.data, given.own, given.out, given.seed), indent=1))
