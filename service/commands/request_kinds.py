"""Ordinary requests, one of a kind: what a new user sends, none of them made to fit a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from service.commands.run.options import RunOptions

Route = Literal["generate", "completions", "chat"]
ABOUT: Final = "Write one sentence about a dog."
SHORT_TEXT: Final = "Write a short text about a market."
ONE: Final = {"type": "keywords", "keywords": ["river"]}
THREE: Final = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
FOUR: Final = {"type": "keywords", "keywords": ["man", "guitar", "stage", "play"]}
FIVE: Final = {"type": "keywords", "keywords": ["child", "kite", "field", "run", "wind"]}
REGEX: Final = {"type": "regex", "pattern": "dog.*park", "mode": "search", "meaning": "dog, and later park"}
OF_LENGTHS: Final = (8, 12, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A request body for one route; what it leaves out takes the server's defaults."""

    name: str
    body: Mapping[str, Any] = field(default_factory=dict)
    route: Route = "generate"

    def filled(self, seed: int, samples: int, model: str) -> dict[str, Any]:
        """The body with what every request needs."""
        body = {"seed": seed, "n": samples, **self.body}
        if self.route == "generate":
            return {"prompt": ABOUT} | body
        said = {"prompt": ABOUT} if self.route == "completions" else {"messages": [{"role": "user", "content": ABOUT}]}
        return {"model": model, **said, **body}


WRITE: Final = {"prompt": "Write one sentence."}
COMMAND_LINE: Final = {
    "": RunOptions().body(ABOUT),
    ", keywords, T 0": RunOptions(keywords="dog,ball", temperature=0.0).body(""),
}
UNCONSTRAINED: Final = (
    RequestKind("no constraint"),
    *(RequestKind(f"no constraint, canvas {length}", {"gen_length": length}) for length in OF_LENGTHS),
    RequestKind("no constraint, T 0", {"temperature": 0}),
    RequestKind("no constraint, T 0.6", {"temperature": 0.6}),
    RequestKind("no constraint, half the steps", {"gen_length": 32, "steps": 16}),
    RequestKind("no constraint, blocks of 16", {"gen_length": 32, "block_length": 16}),
)
KEYWORDS: Final = (
    RequestKind("one keyword", {**WRITE, "constraint": ONE}),
    RequestKind("one keyword, T 0", {**WRITE, "constraint": ONE, "temperature": 0}),
    RequestKind("one keyword, canvas 32", {**WRITE, "constraint": ONE, "gen_length": 32}),
    RequestKind("one keyword, a family of one's own", {**WRITE, "constraint": ONE, "family": "my-task"}),
    RequestKind("three keywords", {**WRITE, "constraint": THREE}),
    RequestKind("three keywords, canvas 32", {**WRITE, "constraint": THREE, "gen_length": 32}),
    RequestKind("three keywords, T 0.6", {**WRITE, "constraint": THREE, "temperature": 0.6}),
    RequestKind("three keywords, w 1", {**WRITE, "constraint": THREE, "policy": {"guidance_scale": 1}}),
    RequestKind("three keywords, w 4", {**WRITE, "constraint": THREE, "policy": {"guidance_scale": 4}}),
    RequestKind("three keywords, tail of 4", {**WRITE, "constraint": THREE, "policy": {"tail_width": 4}}),
    RequestKind("four keywords, T 0", {**WRITE, "constraint": FOUR, "temperature": 0}),
    RequestKind("five keywords, w 1.5", {**WRITE, "constraint": FIVE, "policy": {"guidance_scale": 1.5}}),
)
OTHER_CONSTRAINTS: Final = (
    *(
        RequestKind(str(spec["type"]), {"constraint": spec})
        for spec in (
            {"type": "contains", "phrases": ["golden retriever"]},
            {"type": "not_contains", "phrases": ["cat"]},
            {"type": "starts_with", "phrase": "A brown dog"},
            REGEX,
            {"type": "characters", "min_characters": 20, "max_characters": 80},
            {"type": "word_count", "min_words": 8, "max_words": 12},
            {"type": "any_of", "constraints": [ONE, THREE]},
        )
    ),
    *(
        RequestKind(str(spec["type"]), {"prompt": prompt, "constraint": spec, **setting})
        for prompt, setting, spec in (
            (SHORT_TEXT, {"gen_length": 48}, {"type": "sentences", "min_sentences": 2, "max_sentences": 3}),
            ("Give a name and an age.", {"gen_length": 32}, {"type": "json", "json_schema": {"type": "object"}}),
            ("Is it good? I love it.", {"gen_length": 8}, {"type": "one_of", "labels": ["positive", "negative"]}),
            (ABOUT, {"temperature": 0.6}, {"type": "sentiment", "target": "positive"}),
        )
    ),
)
TEMPLATES: Final = (
    RequestKind("template", {"template": "A dog [blank:3-6] the park because [blank:5]."}),
    RequestKind("template, keywords", {**WRITE, "constraint": THREE, "template": "On Sunday [blank:4] and [blank:6]."}),
    RequestKind("template, T 0", {"template": "My dog [blank:6] in the morning.", "temperature": 0}),
)
OTHER_CLIENTS: Final = (
    RequestKind("OpenAI completion", {}, "completions"),
    RequestKind("OpenAI completion, 32 tokens", {"max_tokens": 32}, "completions"),
    RequestKind("OpenAI completion, blocks of 8", {"max_tokens": 32, "block_length": 8}, "completions"),
    RequestKind("OpenAI completion, stream", {"max_tokens": 32, "stream": True}, "completions"),
    RequestKind("OpenAI completion, suffix", {"max_tokens": 8, "suffix": " in the park."}, "completions"),
    RequestKind("OpenAI chat", {"max_tokens": 24}, "chat"),
    RequestKind("OpenAI chat, T 0", {"max_tokens": 16, "temperature": 0}, "chat"),
    RequestKind("OpenAI chat, stream", {"max_tokens": 16, "stream": True}, "chat"),
    RequestKind("OpenAI chat, keywords, stream", {"max_tokens": 24, "stream": True, "constraint": THREE}, "chat"),
    *(RequestKind(f"command line{name}", body) for name, body in COMMAND_LINE.items()),
)
KINDS: Final = (*UNCONSTRAINED, *KEYWORDS, *OTHER_CONSTRAINTS, *TEMPLATES, *OTHER_CLIENTS)
"""All of them; a canvas that is longer than a model's is for the caller to leave out."""
