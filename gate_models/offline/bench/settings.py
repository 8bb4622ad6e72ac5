"""The settings of a benchmark of speed. The command line offers each field as an option; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What a benchmark is made from."""

    model: str = "mini"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    concurrency: tuple[int, ...] = (1, 8, 32)
    """Requests in flight."""
    requests: int = 32
    """Prompts of a configuration."""
    gen_length: int = 16
    """Canvas and steps."""
    repeats: int = 3
    """Rounds; the median counts."""
    seed: int = 0
    """Seed of every text."""

    def __post_init__(self) -> None:
        if not self.concurrency or min(self.concurrency) < 1:
            raise ValueError(
                f"concurrency {','.join(map(str, self.concurrency)) or 'is empty'}: "
                "give whole numbers of at least 1, such as --concurrency 1,8"
            )
        for name in ("requests", "repeats", "gen_length", "threads"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}; give --{name.replace('_', '-')} of at least 1")
