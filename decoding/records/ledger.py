"""What a request has cost: its forward evaluations (rows) by branch and purpose.

A row is one sequence that passes through the model once. A call of the model with eight sequences is eight rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Branch = Literal["conditional", "unconditional"]
Purpose = Literal["generate", "probe", "repair", "audit", "rollout"]
BRANCHES: Final[tuple[Branch, ...]] = ("conditional", "unconditional")
PURPOSES: Final[tuple[Purpose, ...]] = ("generate", "probe", "repair", "audit", "rollout")


@dataclass(slots=True)
class Ledger:
    """Rows spent by one request (or summed over many)."""

    rows: dict[tuple[Branch, Purpose], int] = field(default_factory=dict)
    skipped_by_eos: int = 0
    """Rows that were not run because an end-of-text filled the rest; never part of `saved`."""
    tokens: int = 0
    """Tokens of the rows that went through the model, padding aside: fewer than a row's where its tail is reused."""

    def charge(self, branch: Branch, purpose: Purpose, rows: int = 1, *, tokens: int = 0) -> None:
        """Add rows that the runner ran, and the tokens that they took."""
        self.tokens += tokens
        self.rows[branch, purpose] = self.rows.get((branch, purpose), 0) + rows

    def of(self, branch: Branch | None = None, purpose: Purpose | None = None) -> int:
        """Rows of a branch and a purpose (None: all)."""
        return sum(n for (b, p), n in self.rows.items() if branch in (None, b) and purpose in (None, p))

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    def saved(self, full_cfg_equivalent: int) -> int:
        """Rows that the policy saved against full CFG; negative where it cost more. End-of-text skips stand apart."""
        return full_cfg_equivalent - self.total - self.skipped_by_eos

    def copy(self) -> Ledger:
        return Ledger(dict(self.rows), self.skipped_by_eos, self.tokens)

    @staticmethod
    def sum(ledgers: Iterable[Ledger]) -> Ledger:
        result = Ledger()
        for ledger in ledgers:
            for (branch, purpose), rows in ledger.rows.items():
                result.charge(branch, purpose, rows)
            result.skipped_by_eos += ledger.skipped_by_eos
            result.tokens += ledger.tokens
        return result
