"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Literal

from astargate_client.transport.reply import Reply


class ChosenSamples(Reply):
    """What became of the samples that were chosen at admission, before anything was known of them."""

    handed_off: int
    """Handed off (while suspended: the gate would have), whether the comparison is done, waits or was dropped."""

    kept: int
    """Ended without a handoff."""

    unfinished: int
    """Cancelled or failed before the gate had decided."""


class PairCounts(Reply):
    """Pairs by verdict: the handoff's before full CFG's."""

    ok_ok: int
    ok_fail: int
    fail_ok: int
    fail_fail: int


class SuccessGap(Reply):
    """Success of handed-off texts less that of full CFG from the same states; negative is a loss."""

    estimate: float | None
    """Null before the first pair."""

    low: float
    high: float
    """Ends of an interval that holds at all times at once."""


class GateAudit(Reply):
    """The shadow audit of one gate version, source, tail width and setting."""

    source: str
    version: str
    model_hash: str
    tail_width: int
    settings: dict[str, float | str]
    """
    What else tells it from others: a risk gate's margin and confidence, a value gate's row_price, a calibrated
    number with the setting that it was measured in.
    """

    offered: bool
    """Whether it is what a request gets on this server that names the source and no setting of its own."""

    state: Literal["uncertified", "active", "suspended"]
    since: float | None
    """When the state began, Unix time; null where nothing was ever audited."""

    pairs: int
    prompts: int
    """Distinct ones among the pairs."""

    counts: PairCounts
    epoch: int
    """Grows with each suspension and recovery; the gap is that of the present one."""

    epoch_pairs: int
    """Its pairs that count: the first of every prompt."""

    gap: SuccessGap
    """Given a handoff."""

    handoff_share: float | None
    """Of the chosen samples whose gate could decide."""

    itt_gap: SuccessGap
    """gap times handoff_share: per request, handed off or not (intention to treat)."""

    margin: float
    confidence: float
    needed: int | None
    """About how many counting pairs more would make it active, if they go on like these; null where none would."""

    chosen: ChosenSamples
    waiting: int
    """Comparisons that are queued or running."""

    dropped: int
    """Comparisons that were due and never made: the queue was full, or the continuation failed."""

    share: float
    """Share of its samples that is chosen now."""


class GateAuditList(Reply):
    family: str
    data: list[GateAudit]
    object: Literal["list"] = "list"
