"""What the golden file asks: seeded bodies that cover presets, gates, constraints, orders, tails, repair, fallbacks.

Every catalogue entry of the server occurs (`test_golden` checks it). `FIRST` measures what some of the rest rely on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. A body of None is a GET."""

    path: str
    body: Body | None = None
    brief: bool = False
    """Keep of each entry of a list its plain fields and a digest: the rest is long."""


SOURCE: Final = "The old man walked slowly along the beach with his small brown dog."
K2: Final = {"type": "keywords", "keywords": ["dog", "ball"]}
K3: Final = {"type": "keywords", "keywords": ["dog", "ball", "beach"], "forms": {"dog": ["dogs"]}}
K4: Final = {"type": "keywords", "keywords": ["boy", "river", "fish", "catch"]}
K5: Final = {"type": "keywords", "keywords": ["girl", "kitchen", "bread", "mother", "cut"]}
K7: Final = {"type": "keywords", "keywords": ["girl", "kitchen", "bread", "mother", "cut", "river", "horse"]}
RATIO: Final = {"type": "length_ratio", "source": SOURCE, "low": 0.4, "high": 0.8}
WORDS: Final = {"type": "word_count", "min_words": 9, "max_words": 12}
MANY_WORDS: Final = {"type": "word_count", "min_words": 13, "max_words": 15}
GLAD: Final = {"type": "sentiment", "target": "positive", "threshold": 0.5}
FOREST: Final = {"type": "keyword_frequency", "keyword": "forest", "relation": "at_least", "count": 3}
LETTER: Final = {"type": "letter_frequency", "letter": "m", "relation": "at_least", "count": 6}
CAPITAL: Final = {"type": "capital_frequency", "relation": "at_least", "count": 2}
NO_COMMA: Final = {"type": "no_comma"}
C07: Final = {"type": "collie_c07", "words": ["have", "rising", "the"]}
C06A: Final = {"type": "collie_c06a", "min_words": 10, "max_chars": 6}
AVOID: Final = {"type": "avoid", "topic": "animals", "forbidden": ["dog", "puppy"], "topical": ["cat", "horse", "cow"]}
BOTH: Final = {"type": "all_of", "constraints": [{"type": "keywords", "keywords": ["dog", "beach"]}, RATIO]}
OWN: Final[dict[str, Body]] = {
    spec["type"]: spec
    for spec in (
        {"type": "regex", "pattern": r"\bdogs?\b", "meaning": "the word dog"},
        {"type": "contains", "phrases": ["dog", "on the"], "inside_words": False},
        {"type": "not_contains", "phrases": ["the"]},
        {"type": "starts_with", "phrase": "A dog"},
        {"type": "ends_with", "phrase": "beach."},
        {"type": "json", "json_schema": {"type": "object", "required": ["name"]}},
        {"type": "characters", "min_characters": 40, "max_characters": 60},
        {"type": "sentences", "min_sentences": 2, "max_sentences": 2},
        {"type": "one_of", "labels": ["good", "bad"]},
        {"type": "any_of", "constraints": [K2, {"type": "contains", "phrases": ["cat"]}]},
        {"type": "none_of", "constraints": [NO_COMMA, {"type": "starts_with", "phrase": "The"}]},
        {"type": "python", "name": "no_repeats"},
    )
}
FIRST_BOOST: Final[Body] = {"order": "guidance_boost", "guided_width": 8, "boost_threshold": 0.8}


def body(constraint: Body | None, seed: int, policy: Body | None = None, **fields: Any) -> Body:
    """A body of /generate; the prompt can be given among `fields`."""
    given = {"constraint": constraint, "policy": policy}
    kept = {name: value for name, value in given.items() if value is not None}
    return {"prompt": "Write one sentence.", "seed": seed, **kept, **fields}


def handoff(source: str, *, fallback: str | None = None, settings: Body | None = None, **policy: Any) -> Body:
    """A handoff with the gate `source` and its `settings`."""
    given = {} if fallback is None else {"on_fallback": fallback}
    return {"preset": "handoff", "gate": {"source": source, **(settings or {})}, **given, **policy}


def cut(fraction: float, **policy: Any) -> Body:
    """A handoff at a fixed fraction."""
    return handoff("fraction", settings={"fraction": fraction}, **policy)


def drained(threshold: float | None = None, **policy: Any) -> Body:
    """A handoff when guidance is drained; without a threshold at the calibrated one."""
    return handoff("drained", settings={} if threshold is None else {"threshold": threshold}, **policy)


def repair(selector: str | None = None, *, fraction: float = 0.0, budget: int | None = None, **settings: Any) -> Body:
    """Reopen and repair after a handoff at `fraction`."""
    chosen = {} if selector is None else {"selector": selector}
    limit = {} if budget is None else {"budget_rows": budget}
    gate = {"source": "fraction", "fraction": fraction}
    return {"preset": "reopen_repair", "gate": gate, "repair": {**chosen, **settings}, **limit}


FIRST: Final[dict[str, Call]] = {
    "horizon": Call(
        "/committor",
        {"prompt": "", "constraint": K2, "gen_length": 6, "rollouts": 3, "horizon": True, "seed": 3},
    ),
}

GENERATE: Final[dict[str, Body]] = {
    "base": body(K3, 1, {"preset": "base"}, gen_length=16, trace=True),
    "base-wide": body(
        RATIO, 2, {"preset": "base", "guidance_scale": 0, "tail_width": 4}, gen_length=24, temperature=0.6
    ),
    "base-adaptive": body(
        None, 3, {"preset": "base", "tail_width": 8, "tail_threshold": 0.5}, gen_length=16, temperature=0.0
    ),
    "base-nucleus": body(None, 4, {"preset": "base"}, gen_length=12, temperature=0.6, top_p=0.8, n=2),
    "full-cfg": body(K3, 5, {"preset": "full_cfg"}, gen_length=16, n=2),
    "full-cfg-wide": body(GLAD, 6, {"preset": "full_cfg", "guided_width": 2, "guidance_scale": 4.0}, gen_length=24),
    "full-cfg-cold": body(C07, 7, {"preset": "full_cfg", "guidance_scale": 1.0}, gen_length=16, temperature=0.0),
    "full-cfg-readable": body(
        K4, 61, {"preset": "full_cfg", "order": "conditional", "plausibility": 0.1}, gen_length=16, temperature=0.6
    ),
    "fraction-plausible": body(K3, 62, cut(0.5, plausibility=0.3), gen_length=16),
    "fraction-spaced": body(K3, 63, cut(0.3, tail_width=8, tail_rule="spaced"), gen_length=24),
    "fraction-best-of-run": body(K3, 64, cut(0.3, tail_width=8, tail_rule="best_of_run"), gen_length=24),
    "fraction-entropy-bound": body(K3, 65, cut(0.3, tail_width=8, tail_rule="entropy_bound"), gen_length=24),
    "fraction-factor": body(K3, 66, cut(0.3, tail_width=8, tail_rule="factor", tail_threshold=0.2), gen_length=24),
    "fraction-stable": body(K3, 68, cut(0.3, tail_width=8, tail_rule="stable"), gen_length=24, temperature=0.6),
    "fraction-conflict": body(K3, 71, cut(0.3, tail_width=8, tail_rule="conflict"), gen_length=24, temperature=0.6),
    "fraction-growing": body(K3, 69, cut(0.3, tail_width=4, tail_schedule="growing"), gen_length=24, temperature=0.6),
    "fraction-mended": body(
        K3, 70, cut(0.3, tail_width=8, tail_mend=3), gen_length=24, temperature=0.6, trace=True, n=2
    ),
    "fraction-cold-tail": body(K3, 67, cut(0.5, tail_temperature=0.0), gen_length=16),
    "full-cfg-few-steps": body(FOREST, 8, {"preset": "full_cfg"}, gen_length=24, steps=10),
    "fraction": body(K3, 9, cut(0.3, tail_width=2), gen_length=16, trace=True),
    "fraction-random-order": body(K3, 11, cut(0.5, order="random", tail_width=4), gen_length=16),
    "fraction-margin-blocks": body(
        NO_COMMA, 12, cut(0.25, tail_width=4), gen_length=32, block_length=8, confidence="margin"
    ),
    "fraction-entropy-nucleus": body(
        LETTER, 13, cut(0.4), gen_length=16, temperature=0.6, top_p=0.9, confidence="neg_entropy"
    ),
    "fraction-random-confidence": body(K4, 14, cut(0.4, tail_width=2), gen_length=16, confidence="random"),
    "fraction-eos-fill": body(FOREST, 15, cut(0.3, tail_width=4), gen_length=48, eos_fill=True),
    "fraction-suppress-eos": body(
        C06A, 16, cut(0.3, tail_width=8, tail_threshold=0.7), gen_length=24, suppress_eos=True
    ),
    "fraction-defer-eos": body(K3, 17, cut(0.5), gen_length=16, block_length=4, defer_eos=True),
    "parallel-tail": body(
        RATIO, 18, {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.2}}, gen_length=24
    ),
    "constant": body(K3, 19, handoff("constant"), gen_length=16),
    "constant-wide": body(CAPITAL, 20, handoff("constant", tail_width=8)),
    "recorded": body(K2, 21, handoff("recorded"), prompt="", gen_length=6),
    "recorded-unknown": body(K2, 22, handoff("recorded", fallback="base"), prompt="", gen_length=8),
    "raw": body(K4, 23, handoff("raw", tail_width=8), gen_length=16),
    "policy-by-default": body(K3, 24),
    "policy-wide": body(BOTH, 25, handoff("policy", tail_width=8)),
    "policy-other-setting": body(K3, 26, handoff("policy", guidance_scale=4.0), gen_length=12),
    "policy-no-family": body(WORDS, 27, handoff("policy", fallback="base"), gen_length=12),
    "policy-rejected": body(AVOID, 28, handoff("policy", fallback="reject"), gen_length=16),
    "value": body(K5, 29, handoff("value", tail_width=8)),
    "value-dear-rows": body(LETTER, 30, handoff("value", settings={"row_price": 0.02}, tail_width=8)),
    "risk": body(K3, 31, handoff("risk", settings={"margin": 0.12}, tail_width=8), gen_length=16),
    "risk-refused": body(K3, 32, handoff("risk", settings={"margin": 0.02, "confidence": 0.99}), gen_length=16),
    "drained": body(K3, 33, drained(0.5, order="guidance_boost"), gen_length=16, n=2),
    "drained-boost": body(K3, 34, drained(0.5, tail_width=4, **FIRST_BOOST), gen_length=16, trace=True),
    "drained-boost-confidence": body(
        K5, 35, drained(0.7, order="boost_confidence", guidance_scale=1.0), gen_length=16, temperature=0.6
    ),
    "drained-calibrated": body(K4, 36, drained(tail_width=2), gen_length=16),
    "drained-unsafe": body(BOTH, 37, drained(tail_width=8, **FIRST_BOOST)),
    "drained-margin": body(K3, 38, handoff("drained", settings={"margin": 0.12}), gen_length=16),
    "drained-recheck": body(LETTER, 39, handoff("drained", settings={"threshold": 0.85, "recheck": 3}), gen_length=16),
    "never": body(AVOID, 40, handoff("never"), gen_length=12),
    "repair": body(LETTER, 41, repair(fraction=0.25, reopen=3, max_rounds=4, budget=96), gen_length=16),
    "repair-length": body(MANY_WORDS, 42, repair(reopen=4), gen_length=20),
    "repair-look": body(K7, 43, repair("keyword_argmax", max_rounds=2), gen_length=16),
    "repair-disagreement": body(
        K7, 44, repair("guidance_disagreement", fraction=0.5, anchor=0.5, max_rounds=2), gen_length=12
    ),
    "repair-doubted": body(K7, 45, repair("commit_confidence", max_rounds=2), gen_length=12, temperature=0.6),
    "repair-left-out": body(LETTER, 46, repair("leave_one_out", max_rounds=2), gen_length=12),
    "repair-truncated": body(FOREST, 47, repair("truncated_committor", rollouts=1, max_rounds=1), gen_length=8),
    "repair-committor": body(FOREST, 48, repair("committor", rollouts=1, max_rounds=1), gen_length=6),
    "repair-random": body(FOREST, 49, repair("random", max_rounds=2), gen_length=12),
    "repair-restart": body(FOREST, 50, repair("restart", max_rounds=2), gen_length=12),
    "repair-peak": body(K2, 57, repair(anchor="peak", max_rounds=2), prompt="", gen_length=6),
    "repair-peak-unknown": body(K7, 52, repair(anchor="peak", max_rounds=1), gen_length=12),
    "auto": body(K5, 53, {"preset": "auto"}),
    "auto-budget": body(LETTER, 54, {"preset": "auto", "budget_rows": 60}, gen_length=16),
    "auto-unmeasured": body(WORDS, 55, {"preset": "auto", "budget_rows": 24}, gen_length=12),
    "auto-too-poor": body(K3, 56, {"preset": "auto", "budget_rows": 3}, gen_length=16),
    "refused-unguided": body(WORDS, 10, cut(0.3, guidance_scale=0.0), gen_length=12),
    "refused-reuse": body(K3, 57, cut(0.3, tail_reuse="prefix"), gen_length=16),
    "refused-gate-setting": body(K3, 58, handoff("never", settings={"threshold": 0.5}), gen_length=16),
    **{f"own-{kind}": body(spec, 70, {"preset": "full_cfg"}) for kind, spec in OWN.items()},
    "template": body(K3, 75, template="A dog [blank:4] the beach with [blank:2].", n=2),
    "template-lengths": body(None, 76, cut(0.5), template="Dear [blank:1-3], thank you for [blank:2-5].", trace=True),
    "template-repaired": body(K3, 77, repair(max_rounds=2, fraction=0.5), template="The [blank:6] and the [blank:3]."),
    "refused-template": body(K3, 78, template="A dog [blank:3-1] the beach."),
    "own-family": body(K3, 71, handoff("policy"), gen_length=16, family="replies-2024"),
    "own-repaired": body(OWN["contains"], 72, repair("keyword_argmax", max_rounds=2), gen_length=16),
    "refused-family": body(K3, 73, family="commongen-k4"),
    "refused-labels": body({"type": "all_of", "constraints": [OWN["one_of"], OWN["regex"]]}, 74),
    "refused-constraint": body({"type": "word_count", "min_words": 9, "max_words": 3}, 59),
}

SMALL: Final = {"constraint": K3, "seed": 60, "max_tokens": 16}
OTHERS: Final[dict[str, Call]] = {
    "stream": Call("/generate", body(K3, 61, cut(0.4, tail_width=4), gen_length=16, stream=True)),
    "completion": Call("/v1/completions", {"model": "mini", "prompt": "Write.", **SMALL, "policy": cut(0.5)}),
    "suffix": Call(
        "/v1/completions",
        {"model": "mini", "prompt": "Write.", "suffix": " in the park.", "seed": 62, "max_tokens": 5},
    ),
    "stream-template": Call("/generate", body(K3, 63, cut(0.4), template="A dog [blank:3] a ball.", stream=True)),
    "chat": Call(
        "/v1/chat/completions",
        {
            "model": "mini",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Write."}],
            "n": 2,
            **SMALL,
            "policy": drained(0.5, tail_width=4),
        },
    ),
    "committor": Call(
        "/committor",
        {"constraint": K3, "state": {"text": "a dog [MASK] [MASK] on the [MASK]"}, "rollouts": 4, "seed": 62},
    ),
    "committor-fraction": Call(
        "/committor",
        {"constraint": K2, "state": {"fraction": 0.5}, "gen_length": 6, "rollouts": 3, "seed": 63},
    ),
    "negative": Call(
        "/generate",
        {"constraint": K3, "negative_prompt": "Write about a cat.", "gen_length": 16, "seed": 64, "nulls": False},
    ),
    "brief": Call("/generate", {"constraint": K3, "policy": "handoff:0.3:k2", "seed": 65, "detail": "brief"}),
    "tokenize": Call("/tokenize", {"prompt": "The dog\u2019s ball.", "template": True}),
    "detokenize": Call("/detokenize", {"tokens": [20, 21, 22]}),
    "policies": Call("/v1/policies"),
    "constraints": Call("/v1/constraints"),
    "gates": Call("/v1/gates?evidence=true", brief=True),
    "horizons": Call("/committor/horizons"),
}

MINI: Final[dict[str, Call]] = {**{name: Call("/generate", asked) for name, asked in GENERATE.items()}, **OTHERS}
"""Sent to the shipped model, in any order or all at once."""

REUSE: Final[dict[str, Call]] = {
    name: Call("/generate", body(NO_COMMA, 7, cut(0.3, **policy), gen_length=16, block_length=8))
    for name, policy in {
        "reuse-none": {},
        "reuse-prefix": {"tail_reuse": "prefix", "tail_refresh": 3},
        "reuse-dual": {"tail_reuse": "dual", "tail_width": 2},
    }.items()
}
"""Sent one by one to a random checkpoint that can reuse keys and values, in the default mode."""

CENSUS: Final = (
    *("--subtasks", "commongen-k3", "--prompts", "2", "--rollouts", "2", "--repeats", "1", "--extra-weights", "0"),
    *("--grid", "0.1,0.6", "--tail-widths", "1,8", "--gen-length", "8", "--seed", "5"),
)
"""Options of `astargate census`."""
