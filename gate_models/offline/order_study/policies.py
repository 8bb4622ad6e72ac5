"""The policies that the commit order study compares, as lists for `astargate evaluate --policies`."""

from __future__ import annotations

from typing import Final

FIRST: Final = "guidance_boost:b0.8"
MAIN: Final = (
    "base",
    "full_cfg",
    "handoff:0.3",
    "handoff:0.6",
    "handoff:0.6:k4",
    "full_cfg:k4",
    "drained:0.7:k4",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
    f"drained:0.5:{FIRST}:m4:k2",
)
"""On every family, at its own canvas."""
CALIBRATED: Final = ("calibrated", "calibrated:k4", f"calibrated:{FIRST}", f"calibrated:{FIRST}:k4", "constant")
"""The family's own threshold or cut, as the server takes it; where there is none, guidance to the end."""
GATES: Final = ("constant:k8", "policy", "policy:k8", "value", "value:k8")
"""The learned gates, as the server takes them, at the tail widths that they are trained for; in other families guidance
to the end. `constant` itself is in `calibrated`.
"""
CHEAP: Final = (
    "base:k2",
    "base:k4",
    "handoff:0.15:k4",
    "handoff:0.3:k4",
    "handoff:0.3:k8",
    "drained:0.7:k8",
    f"drained:0.5:{FIRST}:k8",
    "drained:0.5:guidance_boost:k8",
)
"""Parallel tails below the rows of base decoding: without them the cheapest guidance-first policies have no rival."""
FACTORS: Final = (
    "base",
    "handoff:0.3",
    "handoff:0.6",
    "full_cfg",
    "drained:0.7:k4",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
)
"""Where one of canvas, weight and temperature is moved."""
SWITCH_FRACTIONS: Final = (0.1, 0.15, 0.22, 0.3, 0.45, 0.6, 0.8)
SWITCH: Final = (
    "base",
    "full_cfg",
    "full_cfg:guidance_boost",
    *(f"handoff:{f:g}" for f in SWITCH_FRACTIONS),
    *(f"handoff:{f:g}:guidance_boost" for f in SWITCH_FRACTIONS),
)
"""The switch curve S(t) of Definition 1 in both orders: fresh runs that hand off at each fraction."""
ABLATIONS: Final = (f"drained:0.5:{FIRST}:k2", f"drained:0.5:{FIRST}:k8", f"drained:0.5:{FIRST}:m4:k2")
"""Guidance first as it is, and `--without whole_words` or `--without text_margins`."""
LISTS: Final = {
    "main": MAIN,
    "calibrated": CALIBRATED,
    "cheap": CHEAP,
    "gates": GATES,
    "factors": FACTORS,
    "switch": SWITCH,
    "ablations": ABLATIONS,
}
