"""The chance of success from every state of the enumerable model, computed exactly: what rollouts only estimate.

Dynamic programming over all states (paper Sections 3 and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gate_models.offline.toy.exact_step import Phase, Rules, Step, StepLaw, schedule
from gate_models.offline.toy.model import ToyTables

Success = Callable[[tuple[int, ...]], bool]
"""Finished canvas (L tokens) -> whether it meets the constraint."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """a*_eps of Definition 1, in steps; `censored` where no step before T is safe."""

    step: int
    censored: bool


class ExactToy:
    """Everything that rollouts estimate, exactly. Vectors over states are [states], step t runs from 0 to T."""

    def __init__(self, tables: ToyTables, rules: Rules, success: Success) -> None:
        if rules.paced_by_tokens and rules.steps < tables.canvas.length:
            raise ValueError("a tail paced by its tokens may run past T where T < L: such a chain has no fixed end")
        self.rules, self.canvas = rules, tables.canvas
        self.law = StepLaw(tables, rules)
        self.complete = self.law.masks == 0
        texts = [self.canvas.tokens(number) if done else None for number, done in enumerate(self.complete.tolist())]
        met = [text is not None and success(tuple(t for t in text if t is not None)) for text in texts]
        self.success = torch.tensor(met, dtype=torch.float64)
        """[states]: S(y), 0 for unfinished canvases (which are never reached at T)."""
        self._kernels: dict[tuple[Phase, Step], Tensor] = {}
        self._rows: dict[tuple[int, Step, tuple[int, ...]], Tensor] = {}
        self._mends: dict[tuple[int, tuple[int, ...], int], Tensor] = {}

    @property
    def steps(self) -> int:
        """T."""
        return self.rules.steps

    def kernel(self, step: int, phase: Phase, tail_width: int | None = None) -> Tensor:
        """K_t [states, states] of a phase; a finished canvas stays as it is. `tail_width` overrides the rules'.

        Raises `ValueError` for a tail that remembers its steps: its canvases are no Markov chain, see `paths`.
        """
        if phase == "base" and self.rules.remembers:
            raise ValueError("a tail that depends on its earlier steps has no kernel on canvases alone; see `paths`")
        width = self.rules.guided_width if phase == "guided" else tail_width or self.rules.tail_width
        plan = schedule(self.rules, self.canvas, step, width)
        if (phase, plan) not in self._kernels:
            self._kernels[phase, plan] = self.law.kernel(plan, phase)
        return self._kernels[phase, plan]

    def _row(self, path: tuple[int, ...], handoff: int, tail_width: int | None) -> Tensor:
        """[states]: law of the next state of a run that has gone through `path`."""
        step, state = len(path) - 1, path[-1]
        if step < handoff or not self.rules.remembers:
            return self.kernel(step, "guided" if step < handoff else "base", tail_width)[state]
        entered = int(self.law.masks[path[handoff]])
        plan = self._tail_plan(step, tail_width, entered)
        key = state, plan, path[handoff:step][-2:]
        if key not in self._rows:
            self._rows[key] = self.law.row(plan, state, key[-1])
        return self._rows[key]

    def _tail_plan(self, step: int, tail_width: int | None, entered: int) -> Step:
        """What the schedule asks of a step of a tail that began with `entered` masks."""
        rules, width = self.rules, tail_width or self.rules.tail_width
        return schedule(rules, self.canvas, step, width, growing=rules.growing, entered=entered)

    def committors(self, phase: Phase, tail_width: int | None = None) -> list[Tensor]:
        """q_t(x) for t = 0..T under the phase's kernel to the end: q0 (with a tail of that width) or qg."""
        q = [self.success]
        for step in reversed(range(self.steps)):
            q.append(self.kernel(step, phase, tail_width) @ q[-1])
        return q[::-1]

    def value(self, tail_width: int | None = None) -> list[Tensor]:
        """V_t(x) = qg_t(x) - q0_t(x)."""
        pairs = zip(self.committors("guided"), self.committors("base", tail_width), strict=True)
        return [guided - base for guided, base in pairs]

    def occupation(self, phase: Phase = "guided") -> list[Tensor]:
        """Law of X_t for t = 0..T when the phase runs from the empty canvas."""
        law = torch.zeros(self.canvas.states, dtype=torch.float64)
        law[self.canvas.empty] = 1.0
        laws = [law]
        for step in range(self.steps):
            laws.append(laws[-1] @ self.kernel(step, phase))
        return laws

    def outcomes(self, handoff: int, tail_width: int | None = None) -> Tensor:
        """[states]: law of the finished canvas with guidance before step `handoff` and base after."""
        law = self.occupation()[handoff]
        for step in range(handoff, self.steps):
            law = law @ self.kernel(step, "base", tail_width)
        return law

    def paths(self, handoff: int, tail_width: int | None = None) -> Mapping[tuple[int, ...], float]:
        """Probability of every sequence of states X_0..X_T with guidance before step `handoff`."""
        paths: dict[tuple[int, ...], float] = {(self.canvas.empty,): 1.0}
        for _ in range(self.steps):
            longer: dict[tuple[int, ...], float] = {}
            for path, mass in paths.items():
                row = self._row(path, handoff, tail_width)
                longer |= {(*path, state): mass * float(row[state]) for state in row.nonzero().flatten().tolist()}
            paths = longer
        return paths

    def texts(self, handoff: int, tail_width: int | None = None) -> Mapping[int, float]:
        """Probability of every finished canvas, after the passes that mend its tail."""
        laws: dict[int, float] = {}
        for path, mass in self.paths(handoff, tail_width).items():
            masked = self.canvas.digits[path[handoff]] == self.canvas.alphabet
            opened = masked.nonzero().flatten().tolist()
            law = {path[-1]: mass}
            for number in range(self.rules.mend or 0):
                after: dict[int, float] = {}
                for state, share in law.items():
                    row = self._mended(state, tuple(opened), number)
                    for to in row.nonzero().flatten().tolist():
                        after[to] = after.get(to, 0.0) + share * float(row[to])
                law = after
            for state, share in law.items():
                laws[state] = laws.get(state, 0.0) + share
        return laws

    def _mended(self, state: int, opened: tuple[int, ...], number: int) -> Tensor:
        key = state, opened, number
        if key not in self._mends:
            self._mends[key] = self.law.mended(*key, self.rules.mend or 1)
        return self._mends[key]

    def switch_curve(self, tail_width: int | None = None) -> Tensor:
        """S(t) [T + 1] = E^g[q0_t(X_t)] (Section 3.3); S(T) is full CFG, S(0) the base decoder."""
        base = self.committors("base", tail_width)
        return torch.stack([law @ q for law, q in zip(self.occupation(), base, strict=True)])

    def horizon(self, tolerance: float, tail_width: int | None = None) -> Horizon:
        """a*_eps: the earliest t from which S(s) >= S(T) - eps at every s >= t (Definition 1)."""
        return horizon_of(self.switch_curve(tail_width), tolerance)

    def lift(self, base: list[Tensor], step: int) -> Tensor:
        """[states]: local lift E_Kg[q0_{t+1} | x] - q0_t(x) of Section 4.1, for q0 = `base`."""
        return self.kernel(step, "guided") @ base[step + 1] - base[step]

    def rows(self, handoff: int, tail_width: int | None = None) -> int:
        """Forward evaluations of a run that hands off at `handoff`: 2 a guided step, 1 a base step.

        A serial phase runs its steps to T even where nothing is left to commit; a wide one stops at the last mask.
        Without a threshold the count is the same on every trajectory.
        """
        if self.rules.paced_by_tokens:
            raise ValueError("the rows of a tail paced by its tokens depend on the trajectory")
        widths = {"guided": self.rules.guided_width, "base": tail_width or self.rules.tail_width}
        masks, rows, entered = self.canvas.length, 0, 0
        for step in range(self.steps):
            phase: Phase = "guided" if step < handoff else "base"
            if masks == 0 and widths[phase] > 1:
                break
            entered = masks if step <= handoff else entered
            plan = schedule(self.rules, self.canvas, step, widths[phase])
            if phase == "base":
                plan = self._tail_plan(step, tail_width, entered)
            masks -= plan.quotas[max(0, masks - self.canvas.length + plan.stop)]
            rows += 2 if phase == "guided" else 1
        return rows


def horizon_of(curve: Tensor, tolerance: float) -> Horizon:
    """Definition 1 on a switch curve S [T + 1]."""
    last = len(curve) - 1
    safe = curve >= curve[last] - tolerance
    step = last
    while step > 0 and bool(safe[step - 1]):
        step -= 1
    return Horizon(step, step == last)
