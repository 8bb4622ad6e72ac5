"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Literal, Required, TypedDict

from astargate_client.transport.specs import ConstraintLike, PolicyLike


class CommittorParams(TypedDict, total=False):
    """
    How likely the constraint is met in the end, from a state, with and without guidance; or a prompt's horizon.

    The other fields are those of /generate, so that what is measured is what will be served.
    """

    constraint: Required[ConstraintLike]
    block_length: int | None
    """Semi-autoregressive block; must divide gen_length. By default the model's."""

    confidence: Literal["probability", "margin", "neg_entropy", "random"]
    """What ranks candidates for commitment; left out with policy.order 'random', which ranks by noise."""

    defer_eos: bool | None
    """Commit end-of-text last: its confidence ranks below every other token's. By default where the model needs it."""

    eos_fill: bool
    """Fill everything after a committed end-of-text at once."""

    family: str | None
    """Family whose gates decide: any name of your own, or the constraint's own, which it is where left out."""

    gen_length: int | None
    """Canvas length L in tokens; by default the model's, longer where the constraint needs more."""

    horizon: bool
    """Measure the whole switch curve, a* and the fate; then gate.source 'recorded' and repair.anchor 'peak' find it."""

    policy: PolicyLike | None
    render_constraint: bool
    """Append the constraint's instruction to the prompt; false where the prompt says it already. Needs a constraint."""

    rollouts: int
    """Continuations an arm from each state; at least 2 with horizon: true (cross-fitting splits them)."""

    seed: int | None
    """Sample i is decoded with seed + i; null draws one. The seeds used are in the response."""

    steps: int | None
    """Denoising steps T; by default gen_length."""

    suppress_eos: bool
    """Never emit end-of-text."""

    temperature: float | None
    """By default the model's (GET /v1/models)."""

    template: str | None
    """
    A text with blanks in place of a free canvas, such as "Dear [blank:2], thank you for [blank:3-8].": the rest
    stays as it is. [blank:N] takes N tokens, [blank:A-B] a number from A to B that the seed draws; \\[ is a bracket.
    """

    top_p: float | None
    """Nucleus; 1 is the whole distribution. By default the model's."""


class GateOptions(TypedDict, total=False):
    """What picks the handoff step. Each source takes its own settings (GET /v1/policies lists them), no others."""

    confidence: float | None
    """Confidence of that promise, in (0, 1) (source `risk`)."""

    earliest: float | None
    """No handoff before this fraction of the steps, in [0, 1] (source `drained`, with a threshold)."""

    fraction: float | None
    """Handoff after this fraction of the steps, in [0, 1] (source `fraction`)."""

    margin: float | None
    """Success that may be lost, in (0, 1) (source `risk`; source `drained`: in place of a threshold, the largest one that is certified to lose less with 95 % confidence)."""

    recheck: int | None
    """Guidance comes back for one step after every so many base steps, and stays where it is not drained (source `drained`); None: never."""

    row_price: float | None
    """Success that one forward evaluation is worth, in [0, 1] (source `value`)."""

    threshold: float | None
    """Total variation below which guidance counts as drained, in (0, 1] (source `drained`). Left out: the family's calibrated one where this setting was measured, else the model's pooled one; 0.5 with re-checks, and from half of the steps on for a model that was not measured."""


class GenerateParams(TypedDict, total=False):
    """One or more texts (samples) from a prompt, a constraint, or both."""

    audit_share: float | None
    """Share of the samples that the shadow audit chooses, in place of the server's; for keys with scope `admin`."""

    block_length: int | None
    """Semi-autoregressive block; must divide gen_length. By default the model's."""

    confidence: Literal["probability", "margin", "neg_entropy", "random"]
    """What ranks candidates for commitment; left out with policy.order 'random', which ranks by noise."""

    constraint: ConstraintLike | None
    deadline_s: float | None
    """Seconds after which the request fails."""

    defer_eos: bool | None
    """Commit end-of-text last: its confidence ranks below every other token's. By default where the model needs it."""

    eos_fill: bool
    """Fill everything after a committed end-of-text at once."""

    family: str | None
    """Family whose gates decide: any name of your own, or the constraint's own, which it is where left out."""

    gen_length: int | None
    """Canvas length L in tokens; by default the model's, longer where the constraint needs more."""

    model: str | None
    """The served model's name or hash, as of GET /v1/models; any other is refused. May be left out."""

    n: int
    """Samples; GET /v1/models has this server's limits on n, on n * gen_length and on estimated rows."""

    negative_prompt: str | None
    """
    What guidance leads away from: the unconditional rows read it in place of the masked prompt. No gate was measured
    so: a family's gate is replaced as on_fallback says, and gate.evidence is at most 'pooled'.
    """

    policy: PolicyLike | None
    render_constraint: bool
    """Append the constraint's instruction to the prompt; false where the prompt says it already. Needs a constraint."""

    seed: int | None
    """Sample i is decoded with seed + i; null draws one. The seeds used are in the response."""

    steps: int | None
    """Denoising steps T; by default gen_length."""

    suppress_eos: bool
    """Never emit end-of-text."""

    temperature: float | None
    """By default the model's (GET /v1/models)."""

    template: str | None
    """
    A text with blanks in place of a free canvas, such as "Dear [blank:2], thank you for [blank:3-8].": the rest
    stays as it is. [blank:N] takes N tokens, [blank:A-B] a number from A to B that the seed draws; \\[ is a bracket.
    """

    top_p: float | None
    """Nucleus; 1 is the whole distribution. By default the model's."""

    trace: bool
    """Return every denoising step; n * steps of at most 4096."""


class RepairOptions(TypedDict, total=False):
    """How a text that fails its constraint is repaired; a field that is left out takes the default."""

    anchor: Literal["end", "peak"] | float | None
    """Where a round begins: the finished text ('end'), or the run's state after this fraction of its steps, whose later positions are then decoded again too. Or 'peak': the step at which continuations without guidance succeed most, where you have measured the horizon of this prompt, constraint and setting (POST /committor); else the end, and repair.anchor_reason in the answer says why."""

    max_rounds: int | None
    """Most rounds for a text; 0 only judges it."""

    reopen: int | None
    """Positions reopened in a round; a text that has fewer has all of them reopened."""

    rollouts: int | None
    """Continuations for each candidate position (selectors `truncated_committor` and `committor`; 4 where left out)."""

    selector: (
        Literal[
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
        | None
    )
    """What picks the positions."""


class State(TypedDict, total=False):
    """A partly written text: exactly one of the three."""

    fraction: float | None
    """The state of a guided run from the empty canvas at this fraction of its steps; 0 is the empty canvas."""

    text: str | None
    """Text with [MASK] (any case) where a token is undecided. A longer canvas (gen_length) is undecided behind it."""

    tokens: list[int] | None
    """Token ids of the whole canvas, the model's mask id where undecided."""


class PolicySettings(TypedDict, total=False):
    """
    How guidance is spent. A field that is left out (or null) takes the model's or the preset's value.

    A field that the preset does not use is refused.
    """

    boost_threshold: float | None
    """Guidance first: a guided step also commits every token whose probability guidance raises by this much, each token once, at most `guided_width`."""

    budget_rows: int | None
    """Forward evaluations that repair rounds and further attempts may bring a sample to; none begins that could exceed it."""

    defaults: Literal["model", "paper"] | None
    """
    Where fields that are left out come from, temperature too: this server's defaults for the model (GET /v1/models),
    or the paper's plain guidance.
    """

    guidance_scale: float | None
    """w in c + w(c - u), LLaDA's cfg_scale; Dream's u + g(c - u) is g = w + 1. 0 is the base decoder."""

    guided_width: int | None
    """Positions committed per guided step; 1 follows the schedule."""

    on_fallback: Literal["drained", "full_cfg", "base", "reject"] | None
    """What a request gets that no gate serves: `drained` at the threshold that was measured for the model over all settings, a cautious one where none was (the default of presets that have a gate), guidance to the end, none, or a 422."""

    order: Literal["confidence", "random", "conditional", "guidance_boost", "boost_confidence"] | None
    """Commit order while guided; afterwards confidence order, but for 'random', which stays."""

    plausibility: float | None
    """A guided step takes only tokens whose conditional probability is at least this share of the best one's; None: any token."""

    repair: RepairOptions | None
    """What is done with a finished text that fails its constraint; None: nothing."""

    tail_mend: int | None
    """Passes over a finished wide tail, a row each: every so many of its tokens are looked at again together, and those that have become unlikely or repeat a neighbour are drawn anew; None: no pass."""

    tail_refresh: int | None
    """With tail_reuse: run everything again every so many base steps (1: always, exact)."""

    tail_reuse: Literal["prefix", "dual"] | None
    """Approximate, faster base steps: keep keys and values, run only from the active block on ('prefix') or it alone ('dual')."""

    tail_rule: Literal["top_k", "spaced", "best_of_run", "entropy_bound", "factor", "stable", "conflict"] | None
    """Which positions of a wide base step are committed together: the best (`top_k`), or only some that go well together."""

    tail_schedule: Literal["constant", "growing"] | None
    """How many positions a wide base step commits: `tail_width` each, or as many in all with few at first and many at the end (`growing`)."""

    tail_temperature: float | None
    """Temperature of base steps after a handoff; None: the request's."""

    tail_threshold: float | None
    """Adaptive tail: commit every token of at least this probability, at least what the schedule needs to end in time and at most `tail_width`."""

    tail_width: int | None
    """Positions committed per base step after handoff; 1 follows the schedule."""
