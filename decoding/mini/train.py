"""Trains `mini` to fill in masked texts that fit an instruction (LLaDA's SFT objective); it can be stopped and resumed.

One or more processes with one thread each average their gradients (DistributedDataParallel over gloo). The learning
rate is a trapezoid over the time budget: linear warm-up, constant, then linear decay. An exponential moving average is
kept beside the weights. Data order depends on the seed, the process and the step of the last resume.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from decoding.mini import corpus, data, topics
from decoding.mini.export import AVERAGE, atomic_save, export
from decoding.mini.initial import INITIAL, prepare
from decoding.models.bert_mini import vocabulary
from decoding.models.bert_mini.network import BertMini, BertMiniConfig
from decoding.models.compute import compute_mode

STATE = "state.pt"
LOG_EVERY = 50
AVERAGE_EVERY = 8
"""Steps between two updates of the averaged weights."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What a run is made from. `batch_size` is per process."""

    data: Path
    source: Path
    out: Path
    budget_minutes: float = 90.0
    processes: int = 2
    threads: int = 1
    batch_size: int = 48
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    dropout: float = 0.0
    warmup: float = 0.03
    decay_from: float = 0.55
    ema_decay: float = 0.999
    checkpoint_minutes: float = 4.0
    seed: int = 0
    device: str = "cpu"


def learning_rate(settings: TrainSettings, progress: float) -> float:
    """Trapezoid over `progress` in [0, 1] of the time budget."""
    if progress < settings.warmup:
        return settings.learning_rate * max(progress, 1e-4) / settings.warmup
    if progress < settings.decay_from:
        return settings.learning_rate
    return settings.learning_rate * max(0.0, 1.0 - progress) / (1.0 - settings.decay_from)


def multiplies_bfloat16(device: str) -> bool:
    """Whether products in bfloat16 are faster there than in float32: a CPU needs AMX."""
    return device != "cpu" or bool(torch.cpu._is_amx_tile_supported())


def loss_of(model: nn.Module, batch: data.Batch, device: str) -> Tensor:
    """Weighted cross-entropy at the masked positions: nats per token of the any-order bound."""
    valid = None if bool(batch.valid.all()) else batch.valid.to(device)
    rows = (batch.ids.to(device), batch.positions.to(device), batch.segments.to(device))
    with torch.autocast(device, torch.bfloat16, enabled=multiplies_bfloat16(device)):
        logits = model(*rows, valid, batch.keep.to(device))
    losses = F.cross_entropy(logits.float(), batch.targets.to(device), reduction="none")
    loss: Tensor = (losses * batch.weights.to(device)).sum()
    return loss


def stream_of(settings: TrainSettings, config: BertMiniConfig, key: int) -> Iterator[data.Batch]:
    """Endless training batches; `key` seeds them. Indexing the corpora takes some seconds."""
    tokenizer = Tokenizer.from_file(str(settings.out / "tokenizer.json"))
    unknown, mask, end = (vocabulary.token_id(tokenizer, t) for t in (vocabulary.UNK, vocabulary.MASK, vocabulary.EOT))
    records = {
        source: data.tokenise(sentences, tokenizer, unknown)
        for source, sentences in corpus.load_corpora(settings.data).items()
    }
    sampler = data.ExampleSampler(records, tokenizer, end, key, topics=topics.load_topics(settings.data))
    return data.batches(sampler, settings.batch_size, config.prompt_offset, mask, key)


class Trainer:
    """One training process; rank 0 shows progress and writes checkpoints."""

    def __init__(self, rank: int, settings: TrainSettings) -> None:
        self.rank, self.settings = rank, settings
        config = BertMiniConfig.read(settings.out)
        self.model = BertMini(config, settings.dropout).to(settings.device)
        self.optimizer = self._optimizer()
        self.step, self.spent, self.sequences = 0, 0.0, 0
        self._restore()
        key = (settings.seed * 1_000_003 + self.step) * 64 + rank
        self.stream = stream_of(settings, config, key)
        self.network: nn.Module = self.model
        if settings.processes > 1:
            self.network = DistributedDataParallel(self.model)

    def _optimizer(self) -> torch.optim.AdamW:
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": self.settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)

    def _restore(self) -> None:
        path = self.settings.out / STATE
        if path.exists():
            state: dict[str, Any] = torch.load(path, map_location=self.settings.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.average: dict[str, Tensor] = state["average"]
            self.step, self.spent, self.sequences = state["step"], state["spent"], state["tokens"]
        else:
            self.model.load_state_dict(load_file(self.settings.out / INITIAL))
            self.average = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def run(self) -> None:
        """Train to the end of the time budget."""
        settings, budget = self.settings, self.settings.budget_minutes * 60
        self.model.train()
        saved, clock, losses = self.spent, time.process_time(), []
        layout = "{l_bar}{bar}| {n:.0f}/{total:.0f}s {postfix}"
        with tqdm(total=budget, initial=self.spent, disable=self.rank != 0, mininterval=10, bar_format=layout) as bar:
            while self.spent < budget:
                losses.append(self._one_step(self.spent / budget))
                now = time.process_time()
                self.spent, clock = self._agree(self.spent + now - clock), now
                if self.rank != 0:
                    continue
                bar.update(min(self.spent, budget) - bar.n)
                if self.step % LOG_EVERY == 0:
                    self._log(sum(losses) / len(losses))
                    bar.set_postfix(step=self.step, loss=f"{sum(losses) / len(losses):.3f}", refresh=False)
                    losses.clear()
                if self.spent - saved > settings.checkpoint_minutes * 60 or self.spent >= budget:
                    saved = self.spent
                    self._save()

    def _one_step(self, progress: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, progress)
        loss = loss_of(self.network, next(self.stream), self.settings.device)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.sequences += self.settings.batch_size * self.settings.processes
        if self.step % AVERAGE_EVERY:
            return float(loss.detach())
        decay = min(self.settings.ema_decay, (1 + self.step) / (10 + self.step)) ** AVERAGE_EVERY
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.model.state_dict().values()), 1 - decay)
        return float(loss.detach())

    def _agree(self, spent: float) -> float:
        """Rank 0's clock, so that every process stops at the same step."""
        if self.settings.processes == 1:
            return spent
        shared = torch.tensor([spent], dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared[0])

    def _log(self, loss: float) -> None:
        entry = {
            "step": self.step,
            "spent_s": round(self.spent, 1),
            "sequences": self.sequences,
            "loss": round(loss, 4),
        }
        with (self.settings.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")

    def _save(self) -> None:
        out = self.settings.out
        atomic_save(self.average, out / AVERAGE)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
            "spent": self.spent,
            "tokens": self.sequences,
        }
        partial = out / (STATE + ".partial")
        torch.save(state, partial)
        partial.replace(out / STATE)
        made = {"steps": self.step, "sequences": self.sequences, "seconds": round(self.spent)}
        kept = {k: v for k, v in asdict(self.settings).items() if k not in ("data", "source", "out")}
        (out / "train.json").write_text(json.dumps(made | {"settings": kept}, indent=1) + "\n")


def worker(rank: int, settings: TrainSettings, port: int) -> None:
    """Entry of one training process; `port` is where the processes meet."""
    if settings.processes > 1:
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=settings.processes)
    try:
        with compute_mode(settings.threads):
            Trainer(rank, settings).run()
    finally:
        if settings.processes > 1:
            dist.destroy_process_group()


def train(settings: TrainSettings) -> None:
    """Run (or resume) a training to the end of its time budget."""
    if not (settings.out / INITIAL).exists():
        prepare(settings.data, settings.source, settings.out)
    if settings.processes == 1:
        worker(0, settings, 0)
    else:
        spawn(worker, args=(settings, _free_port()), nprocs=settings.processes)  # type: ignore[no-untyped-call]
    export(settings.out, settings.out, stream_of(settings, BertMiniConfig.read(settings.out), settings.seed))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
