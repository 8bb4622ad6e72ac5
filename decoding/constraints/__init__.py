"""Success predicates: deterministic, judge-free tests of a finished text (paper, appendix "Constraint Families").

`parse` turns a JSON object into a checked `Constraint`; its `evaluate` gives the binary verdict and a graded score.
"""

from decoding.constraints.base.constraint import REGISTRY, Check, Constraint, ConstraintError, Facts, Verdict, register
from decoding.constraints.registry import FAMILIES, Scorers, catalogue, parse, warm_up

__all__ = [
    "FAMILIES",
    "REGISTRY",
    "Check",
    "Constraint",
    "ConstraintError",
    "Facts",
    "Scorers",
    "Verdict",
    "catalogue",
    "parse",
    "register",
    "warm_up",
]
