"""The repair part of a policy: which positions of a failed text are decoded again, how many, from where, how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from decoding.policy.checks import PolicyError, one_of, whole, within

Selector = Literal[
    "constraint_aware",
    "keyword_argmax",
    "commit_confidence",
    "guidance_disagreement",
    "leave_one_out",
    "truncated_committor",
    "committor",
    "random",
    "restart",
]
SELECTORS: Final = get_args(Selector)
ROLLOUT_SELECTORS: Final = ("truncated_committor", "committor")
LOOKING: Final = "keyword_argmax"
"""The selector that takes one guided step to see where missing keywords would go."""
TRUNCATED_STEPS: Final = 8
"""Steps of a rollout of the truncated committor before the rest is filled (paper, "Repair by Reopening": k = 8)."""
ROLLOUTS: Final = 4
REOPEN: Final = 3
END: Final = "end"
MAX_ROUNDS: Final = 64
MAX_ROLLOUTS: Final = 256


@dataclass(frozen=True, slots=True)
class Repair:
    """Verified repair: a finished text that fails its constraint has some positions reopened and decoded again under
    guidance; the best text of all rounds is kept.
    """

    selector: Selector = "constraint_aware"
    """What picks the positions."""
    reopen: int = REOPEN
    """Positions reopened in a round; a text that has fewer has all of them reopened."""
    max_rounds: int = 4
    """Most rounds for a text; 0 only judges it."""
    anchor: float | Literal["end"] = END
    """Where a round begins: the finished text ('end'), or the run's state after this fraction of its steps, whose
    later positions are then decoded again too.
    """
    rollouts: int | None = None
    """Continuations for each candidate position (selectors `truncated_committor` and `committor`; 4 where left out)."""

    def __post_init__(self) -> None:
        one_of("repair.selector", self.selector, SELECTORS)
        whole("repair.reopen", self.reopen)
        whole("repair.max_rounds", self.max_rounds, 0)
        if self.max_rounds > MAX_ROUNDS:
            raise PolicyError("repair.max_rounds", f"must be at most {MAX_ROUNDS}")
        if self.anchor != END:
            if not isinstance(self.anchor, float | int):
                raise PolicyError("repair.anchor", "must be 'end' or a fraction of the steps")
            within("repair.anchor", self.anchor, 0.0, 1.0)
        if self.rollouts is not None:
            if self.selector not in ROLLOUT_SELECTORS:
                raise PolicyError(
                    "repair.rollouts", f"is not used by selector '{self.selector}', which runs none; leave it out"
                )
            whole("repair.rollouts", self.rollouts)
            if self.rollouts > MAX_ROLLOUTS:
                raise PolicyError("repair.rollouts", f"must be at most {MAX_ROLLOUTS}")

    @property
    def rollout_count(self) -> int:
        """Rollouts for each candidate position; 0 where the selector runs none."""
        if self.selector not in ROLLOUT_SELECTORS:
            return 0
        return ROLLOUTS if self.rollouts is None else self.rollouts
