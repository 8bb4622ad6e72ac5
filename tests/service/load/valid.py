"""Requests that a server takes: hypothesis strategies that know which fields go together.

Those that know no more than each field's type are refused nine times in ten, and try the validation alone.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from decoding.constraints import catalogue
from decoding.policy.decoding_policy import ON_FALLBACK
from decoding.policy.repair import SELECTORS
from decoding.sampling.block_schedule import TAIL_SCHEDULES
from decoding.sampling.commit_order import CONFIDENCE_KINDS, guidance_first_orders, guided_orders, order_names
from decoding.sampling.tail_rule import TOP_K, tail_rules

Body = dict[str, Any]
WORDS: Final = ("dog", "ball", "beach", "run", "the", "Straße", "naïve", "日本", "don't", "ice cream")
EXAMPLES: Final = tuple(entry["example"] for entry in catalogue())
LONGEST: Final = 12
"""Tokens of a canvas whose length is drawn."""
SHARES: Final = st.floats(0.01, 0.99).map(lambda value: round(value, 3))


@st.composite
def composed(draw: st.DrawFn) -> Body:
    """A constraint of any type; compositions of two or three of them too."""
    leaves = [spec for spec in EXAMPLES if "constraints" not in spec]
    kind = draw(st.sampled_from(["one", "one", "any_of", "all_of", "none_of"]))
    if kind == "one":
        return draw(st.sampled_from(EXAMPLES) | keywords() | texts() | patterns() | schemas())
    if kind == "none_of":
        return {"type": kind, "constraints": [draw(keywords())]}
    many = draw(st.lists(st.sampled_from(leaves), min_size=2, max_size=3, unique_by=lambda spec: spec["type"]))
    return {"type": "any_of" if kind == "all_of" and len(many) > 2 else kind, "constraints": many}


def keywords() -> st.SearchStrategy[Body]:
    return st.builds(
        lambda words: {"type": "keywords", "keywords": words},
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True),
    )


def texts() -> st.SearchStrategy[Body]:
    some = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True)
    return st.one_of(
        st.builds(lambda words: {"type": "contains", "phrases": words}, some),
        st.builds(lambda words: {"type": "not_contains", "phrases": words}, some),
        st.builds(lambda words: {"type": "one_of", "labels": words}, some),
        st.builds(lambda word: {"type": "starts_with", "phrase": word}, st.sampled_from(WORDS)),
        st.builds(lambda least: {"type": "characters", "min_characters": least}, st.integers(1, 30)),
        st.builds(lambda most: {"type": "word_count", "min_words": 1, "max_words": most}, st.integers(2, 9)),
        st.builds(lambda most: {"type": "sentences", "min_sentences": 1, "max_sentences": most}, st.integers(1, 3)),
    )


def patterns() -> st.SearchStrategy[Body]:
    parts = st.lists(
        st.sampled_from([r"\w+", r"\d*", "dog|cat", "[a-z]{1,9}", r"\s?", "(a|b)*"]), min_size=1, max_size=4
    )
    return st.builds(lambda some: {"type": "regex", "pattern": "".join(some)}, parts)


def schemas() -> st.SearchStrategy[Body]:
    leaves: st.SearchStrategy[Body] = st.sampled_from(
        [{"type": "integer"}, {"type": "string", "maxLength": 5}, {"enum": ["a", 1, None]}, {"type": "boolean"}, {}]
    )
    inner = st.recursive(
        leaves,
        lambda some: (
            some.map(lambda item: {"type": "array", "items": item})
            | st.dictionaries(st.sampled_from(["a", "b"]), some, max_size=2).map(
                lambda properties: {"type": "object", "properties": properties}
            )
        ),
        max_leaves=4,
    )
    return inner.map(lambda schema: {"type": "json", "json_schema": schema})


@st.composite
def gates(draw: st.DrawFn) -> Body:
    """A gate with settings of its own source."""
    source = draw(st.sampled_from(["fraction", "drained", "never", "constant", "policy", "value", "risk"]))
    settings: dict[str, Body] = {
        "fraction": {"fraction": draw(SHARES)},
        "drained": draw(st.sampled_from([{}, {"threshold": 0.4}, {"margin": 0.1}, {"recheck": 2}])),
        "value": {"row_price": draw(SHARES)},
        "risk": {"margin": 0.05, "confidence": 0.9},
    }
    return {"source": source, **settings.get(source, {})}


@st.composite
def policies(draw: st.DrawFn, canvas: int, *, judged: bool) -> Body:
    """A policy whose fields go together, on a canvas of so many tokens; `judged`: there is a constraint."""
    presets = ["base", "full_cfg", "handoff", "parallel_tail", *(["reopen_repair", "auto"] if judged else [])]
    policy: Body = {"preset": draw(st.sampled_from(presets))}
    if policy["preset"] == "auto":
        return policy | draw(st.fixed_dictionaries({}, optional={"budget_rows": st.integers(1, 60)}))
    if policy["preset"] == "base":
        order = st.sampled_from([name for name in order_names() if name not in guided_orders()])
        return policy | draw(st.fixed_dictionaries({}, optional={"order": order, "tail_width": st.integers(1, canvas)}))
    policy |= draw(st.fixed_dictionaries({}, optional={"guidance_scale": st.floats(0.1, 20), "plausibility": SHARES}))
    policy |= draw(guided(canvas))
    if policy["preset"] != "full_cfg":
        policy |= draw(tails(canvas, wide=policy["preset"] == "parallel_tail"))
    if policy["preset"] == "reopen_repair":
        policy["repair"] = draw(repairs(canvas))
    return policy


@st.composite
def guided(draw: st.DrawFn, canvas: int) -> Body:
    """Width and order of guided steps."""
    width = draw(st.integers(1, canvas))
    order = draw(st.sampled_from(order_names()))
    fields: Body = {"guided_width": width, "order": order}
    if width > 1 and order in guidance_first_orders() and draw(st.booleans()):
        fields["boost_threshold"] = draw(SHARES)
    return fields


@st.composite
def tails(draw: st.DrawFn, canvas: int, *, wide: bool) -> Body:
    """The gate, and what follows a handoff."""
    gate = draw(gates())
    fields: Body = {
        "gate": gate,
        "on_fallback": draw(st.sampled_from([name for name in ON_FALLBACK if name != "reject"])),
    }
    if gate["source"] == "never":
        return fields | ({"tail_width": 1} if wide else {})
    width = draw(st.integers(2, canvas)) if canvas > 1 and draw(st.booleans()) else 1
    fields["tail_width"] = width
    if width > 1:
        fields |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "tail_threshold": SHARES,
                    "tail_rule": st.sampled_from(tail_rules()),
                    "tail_schedule": st.sampled_from(TAIL_SCHEDULES),
                    **({} if "recheck" in gate else {"tail_mend": st.integers(2, 6)}),
                },
            )
        )
        if fields.get("tail_rule", TOP_K) != TOP_K:
            fields.pop("tail_threshold", None)
    return fields | draw(st.fixed_dictionaries({}, optional={"tail_temperature": st.floats(0, 5)}))


@st.composite
def repairs(draw: st.DrawFn, canvas: int) -> Body:
    selector = draw(st.sampled_from(SELECTORS))
    return {
        "selector": selector,
        "reopen": draw(st.integers(1, canvas)),
        "max_rounds": draw(st.integers(0, 2)),
        "anchor": draw(st.sampled_from(["end", "peak"]) | SHARES),
    }


@st.composite
def canvases(draw: st.DrawFn) -> Body:
    """What /generate asks for, in its own words."""
    judged = draw(st.booleans())
    length = draw(st.integers(1, LONGEST)) if not judged else LONGEST
    body: Body = {"prompt": draw(st.sampled_from(["a dog", "Write a sentence.", "日本", "x" * 40]))}
    if judged:
        body["constraint"] = draw(composed())
    body |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.floats(0, 5),
                "top_p": st.floats(0.01, 1),
                "seed": st.integers(0, 2**53 - 9),
                "eos_fill": st.booleans(),
                "suppress_eos": st.booleans(),
            },
        )
    )
    if not judged or draw(st.booleans()):
        steps = draw(st.integers(1, length))
        body |= {"gen_length": length if not judged else 4 * LONGEST, "steps": steps}
    return body | {"policy": draw(policies(length, judged=judged))}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Body]:
    """Path and body of a request for texts, in each of the three shapes."""
    body = draw(canvases())
    path = draw(st.sampled_from(["/generate", "/v1/completions", "/v1/chat/completions"]))
    body |= {"n": draw(st.integers(1, 2)), "stream": draw(st.booleans())}
    if path == "/generate":
        if draw(st.booleans()) and body["policy"].get("order") != "random":
            body["confidence"] = draw(st.sampled_from(sorted(CONFIDENCE_KINDS)))
        return path, body
    length = body.pop("gen_length", None)
    body |= {"model": "mini"} | ({"max_tokens": length, "block_length": length} if length else {})
    if path == "/v1/chat/completions":
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return path, body


@st.composite
def measurements(draw: st.DrawFn) -> Body:
    """A small measurement of /committor."""
    body = draw(canvases().filter(lambda body: "constraint" in body))
    body["policy"] = draw(st.fixed_dictionaries({}, optional={"guidance_scale": st.floats(0.1, 20)}))
    body |= {"gen_length": LONGEST, "steps": draw(st.integers(4, LONGEST)), "rollouts": 2}
    return body | draw(st.sampled_from([{"horizon": True}, {"state": {"fraction": 0.5}}, {"state": {"fraction": 0}}]))
