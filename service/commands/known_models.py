"""Models that can be served, what they need, and whether this machine has it: known before anything is downloaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Fit = Literal["fits", "tight", "does not fit"]

DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
PROCESS_GB: Final = 0.5
"""Python, torch and the server, without a model."""
WORKING_GB_A_BYTE: Final = 0.3
"""Activations of 16 rows of 256 tokens of an 8-billion model, for each byte of a number (docs/sizing.md)."""
ROOMY: Final = 0.8
"""Share of the memory up to which a model fits: longer rows and larger batches need the rest."""
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
MEMORY_FILE: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A checkpoint whose architecture has a loader here."""

    name: str
    """As `--model` takes it."""
    architecture: str
    parameters: float
    dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")
    """Precisions of its weights that can be asked for; the first is the published one."""

    def weights_gb(self, dtype: str) -> float:
        """Gigabytes (10^9 bytes) of the weights in memory."""
        return self.parameters * DTYPE_BYTES[self.dtype(dtype)] / 1e9

    def download_gb(self) -> float:
        """Gigabytes of its files."""
        return self.parameters * DTYPE_BYTES[self.dtypes[0]] / 1e9

    def memory_gb(self, dtype: str) -> float:
        """Gigabytes that serving takes: weights, activations of a usual load, the process."""
        width = DTYPE_BYTES[self.dtype(dtype)]
        share = min(1.0, self.parameters / 8e9)
        return self.weights_gb(dtype) + WORKING_GB_A_BYTE * width * share + PROCESS_GB

    def dtype(self, asked: str) -> str:
        """The precision that is used where `asked` is asked for."""
        return asked if asked in self.dtypes else self.dtypes[0]


LLADA: Final = 8.02e9
DREAM: Final = 7.62e9
KNOWN: Final = (
    KnownModel("mini", "bert_mini", 16.9e6, ("float32",)),
    KnownModel("GSAI-ML/LLaDA-8B-Instruct", "llada", LLADA),
    KnownModel("GSAI-ML/LLaDA-8B-Base", "llada", LLADA),
    KnownModel("GSAI-ML/LLaDA-1.5", "llada", LLADA),
    KnownModel("Dream-org/Dream-v0-Instruct-7B", "dream", DREAM),
    KnownModel("Dream-org/Dream-v0-Base-7B", "dream", DREAM),
)


def fit_of(needed_gb: float, present_gb: float) -> Fit:
    """Whether `needed_gb` can be had of `present_gb`."""
    if needed_gb <= ROOMY * present_gb:
        return "fits"
    return "tight" if needed_gb <= present_gb else "does not fit"


def memory_of(device: str) -> float:
    """Gigabytes that are free on a device. Raises `ValueError` where torch cannot reach it."""
    if device == "cpu":
        return main_memory()
    import torch  # noqa: PLC0415  (seconds, and only for an accelerator)

    try:
        free, _ = torch.cuda.mem_get_info(torch.device(device))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"device {device!r} cannot be reached: {reason}") from None
    return free / 1e9


def main_memory() -> float:
    """Gigabytes of memory that this process may still take: what the system or its container leaves."""
    limits = [_available()]
    if CGROUP_LIMIT.is_file() and (text := CGROUP_LIMIT.read_text().strip()).isdecimal():
        limits.append(int(text) / 1e9)
    return min(limits)


def _available() -> float:
    if MEMORY_FILE.is_file():
        for line in MEMORY_FILE.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / 1e9
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
