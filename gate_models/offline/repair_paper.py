"""What the paper measured of reopening (LLaDA-8B, 396 prompts, 12 subtasks), beside which our tables stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RECOVERY: Final[Mapping[str, tuple[str, str]]] = {
    "control": ("0.23", "0.20"),
    "committor": ("0.39 (+0.16)", "0.34 (+0.14)"),
    "truncated_committor": ("0.41 (+0.18)", "0.31 (+0.11)"),
    "leave_one_out": ("0.40 (+0.17)", "0.30 (+0.10)"),
    "guidance_disagreement": ("0.37 (+0.14)", "0.26 (+0.07)"),
    "commit_confidence": ("0.38 (+0.15)", "0.35 (+0.16)"),
}
"""Success and gain at the pre and at the post anchor (Table "Reopen recovery", K = 3)."""
CONTROL_BY_TYPE: Final[Mapping[tuple[str, str], float]] = {("pre", "collapse"): 0.369, ("pre", "hopeless"): 0.091}
"""Success of the control by (anchor, population) (Appendix "Repair by Reopening", Finding 1)."""
GAIN: Final[Mapping[tuple[str, str, int, str], float]] = {
    ("pre", "collapse", 3, "committor"): 0.176,
    ("pre", "hopeless", 3, "committor"): 0.152,
    ("post", "collapse", 3, "committor"): 0.170,
    ("pre", "collapse", 3, "guidance_disagreement"): 0.219,
}
"""Gain over the control by (anchor, population, K, selector) (Findings 1 and 2)."""
CONTRAST: Final[Mapping[tuple[str, str, int], float]] = {
    ("post", "collapse", 3): -0.056,
    ("post", "hopeless", 1): 0.036,
}
"""Committor minus commit confidence in the two cells, of eight, where the interval leaves out 0 (Finding 2)."""
AGREEMENT: Final = "0.14 to 0.36"
"""How often committor and commit confidence pick the same position at K = 1 (Finding 2)."""
LESION: Final[Mapping[tuple[str, str, bool], str]] = {
    ("keyword", "lesion", True): "0.00, 0.96, 1.47, 0.94",
    ("keyword", "lesion", False): "0.00, 0.92, 1.46, 0.88",
    ("keyword", "reopen", True): "0.71, 0.98, -, -",
    ("keyword", "reopen", False): "0.73, 0.97, -, -",
    ("control", "lesion", True): "-, 1.00, -, -",
    ("control", "lesion", False): "-, 1.00, -, -",
    ("control", "reopen", True): "-, 1.00, -, -",
    ("control", "reopen", False): "-, 1.00, -, -",
}
"""Restored, present, occurrences, present if once (Appendix "Commitment Is Not Carried by a Fixed Token Position")."""
