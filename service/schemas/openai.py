"""Wire types of the OpenAI shapes: what their clients send and read, with `constraint` and `policy` beside it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError, PydanticKnownError

from decoding.policy.decoding_policy import MAX_TEMPERATURE
from decoding.request.validation import MAX_STEPS
from decoding.sampling.commit_order import CONFIDENCE_KINDS
from service.schemas.base import MAX_CANVAS, MAX_PROMPT_CHARACTERS, MAX_SEED, Reply, Request, choices
from service.schemas.constraint import FAMILY_SCHEMA, ConstraintObject
from service.schemas.generate import CheckResult, ForwardEvaluations, GateResult, RepairResult
from service.schemas.policy import PolicyField, ResolvedPolicy

MAX_MESSAGES = 1000
MAX_PROMPTS = 256
MAX_STOPS = 64
MAX_STOP_CHARACTERS = 1000
MAX_ALTERNATIVES = 20
"""Of OpenAI's; this server has one, the chosen token."""


def refused(*neutral: Any) -> Any:
    """Type of a field of OpenAI's, or of servers with its shapes, that this one does not serve: null or a value that
    asks for nothing.
    """

    def check(value: Any) -> Any:
        if value is None or any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral):
            return value
        raise PydanticCustomError("not_supported", "is not supported by this server; leave it out")

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": [None, *neutral]})]


def _prompts(value: Any) -> Any:
    if isinstance(value, str):  # one prompt: what is wrong with it is called `prompt`, and not `prompt[0]`
        if any("\ud800" <= letter <= "\udfff" for letter in value):  # JSON can hold a lone surrogate
            raise PydanticKnownError("string_unicode")
        if len(value) > MAX_PROMPT_CHARACTERS:
            raise PydanticKnownError("string_too_long", {"max_length": MAX_PROMPT_CHARACTERS})
    if isinstance(value, list) and any(isinstance(item, int | list) for item in value):
        raise PydanticCustomError("not_supported", "must be a string or a list of strings: token ids are not supported")
    return [value] if isinstance(value, str) else value


def _stops(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _text_parts(value: Any) -> Any:
    """Content given as parts; every part must be text."""
    if not isinstance(value, list):
        return value
    texts = [part.get("text") for part in value if isinstance(part, dict) and part.get("type") == "text"]
    if len(texts) != len(value) or not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("not_supported", "may hold text alone: no images, audio or files")
    return "\n".join(str(text) for text in texts)


class StreamOptions(Request):
    include_usage: bool = False
    """A last chunk with the usage of the whole request."""
    continuous_usage_stats: bool = False
    """With include_usage: every chunk has the usage so far, without forward evaluations."""
    include_obfuscation: refused(False) = None  # type: ignore[valid-type]


class OpenAIRequest(Request):
    """What completions and chat completions share. The fields from `constraint` on are this server's own."""

    model: str
    """Name of the served model (GET /v1/models) or its hash."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Length of the canvas, /generate's gen_length: exactly so many positions are decoded, end-of-text included. Above
    the model's limit it is an error, or that limit on a server with --lenient.
    """
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_CANVAS)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    """Choice i is decoded with seed + i; without it a seed is drawn."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    constraint: ConstraintObject | None = None
    family: str | None = Field(None, json_schema_extra=FAMILY_SCHEMA)
    """As in /generate."""
    render_constraint: bool | None = None
    """Append the constraint's instruction to the prompt or last message; true where left out."""
    policy: PolicyField = None
    """An object, or a policy's name for one: 'auto', 'value:k8'."""
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    """Denoising steps; by default max_tokens."""
    block_length: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Blocks from left to right. By default the model's own; a stream of a model that decodes the whole canvas at once
    gets the longest of at most 8 that divides max_tokens, so that it can move (max_tokens itself decodes it at once).
    """
    confidence: str | None = Field(None, json_schema_extra={"anyOf": [choices(*CONFIDENCE_KINDS), {"type": "null"}]})
    """As in /generate."""
    eos_fill: bool | None = None
    """As in /generate."""
    suppress_eos: bool | None = None
    """As in /generate."""
    defer_eos: bool | None = None
    """As in /generate."""
    deadline_s: float | None = Field(None, gt=0)
    """Seconds after which the request fails."""
    stop: Annotated[
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]], Field(max_length=MAX_STOPS)
        ]
        | None,
        BeforeValidator(_stops, json_schema_input_type=str | list[str] | None),
    ] = None
    """A string or several. A finished text ends before the first of them, and its usage counts what is left; the whole
    canvas is decoded all the same. The verdict on a constraint is of the text that is left.
    """
    ignore_eos: bool | None = None
    """suppress_eos by its name in other servers."""
    user: str | None = None
    """Taken and not used, as are the other fields that name a request."""
    metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    best_of: refused(1) = None  # type: ignore[valid-type]
    echo: refused(False) = None  # type: ignore[valid-type]
    store: refused(False) = None  # type: ignore[valid-type]
    top_k: refused(-1, 0) = None  # type: ignore[valid-type]
    min_p: refused(0) = None  # type: ignore[valid-type]
    min_tokens: refused(0) = None  # type: ignore[valid-type]
    repetition_penalty: refused(1) = None  # type: ignore[valid-type]
    length_penalty: refused(1) = None  # type: ignore[valid-type]
    use_beam_search: refused(False) = None  # type: ignore[valid-type]
    stop_token_ids: refused([]) = None  # type: ignore[valid-type]
    include_stop_str_in_output: refused(False) = None  # type: ignore[valid-type]
    skip_special_tokens: refused(True) = None  # type: ignore[valid-type]
    spaces_between_special_tokens: refused(True) = None  # type: ignore[valid-type]
    presence_penalty: refused(0) = None  # type: ignore[valid-type]
    frequency_penalty: refused(0) = None  # type: ignore[valid-type]
    logit_bias: refused({}) = None  # type: ignore[valid-type]


class CompletionRequest(OpenAIRequest):
    """A text from a prompt. Every other field of OpenAI's is refused by name, never ignored."""

    prompt: Annotated[
        list[Annotated[str, Field(max_length=MAX_PROMPT_CHARACTERS)]],
        BeforeValidator(_prompts, json_schema_input_type=str | list[str]),
        Field(min_length=1, max_length=MAX_PROMPTS),
    ] = Field(default_factory=lambda: [""], json_schema_extra={"default": ""})
    """A string, or several: choices are in their order, n for each. May be empty where a constraint is given and
    rendered.
    """
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Tokens with the logarithm of the probability that each had in the step that committed it, under guidance where
    the step was guided, before temperature and top_p. Of alternatives the chosen token alone is given. In a stream all
    come with the last chunk.
    """
    suffix: str | None = Field(None, max_length=MAX_PROMPT_CHARACTERS)
    """What follows the text: max_tokens positions in front of it (16 where left out) are filled, all with text. With it
    there is no stop and no logprobs.
    """


class ChatMessage(Request):
    role: Literal["system", "developer", "user", "assistant"]
    """developer is taken as system. A model without roles (mini) reads the contents of all turns as one text."""
    content: Annotated[str, BeforeValidator(_text_parts), Field(max_length=MAX_PROMPT_CHARACTERS)]
    """Text, or a list of text parts."""
    name: refused() = None  # type: ignore[valid-type]
    refusal: refused() = None  # type: ignore[valid-type]
    annotations: refused([]) = None  # type: ignore[valid-type]
    audio: refused() = None  # type: ignore[valid-type]
    tool_calls: refused([]) = None  # type: ignore[valid-type]
    function_call: refused() = None  # type: ignore[valid-type]


class ChatRequest(OpenAIRequest):
    """The assistant's next turn. Every other field of OpenAI's is refused by name, never ignored."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    """The last one is the user's; it may be empty where a constraint is given and rendered."""
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """The newer name of max_tokens; where both are given they must be equal."""
    logprobs: bool | None = None
    """As in completions."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Alternatives beside each token: the chosen token alone is given. Needs logprobs."""
    add_generation_prompt: refused(True) = None  # type: ignore[valid-type]
    continue_final_message: refused(False) = None  # type: ignore[valid-type]
    chat_template: refused() = None  # type: ignore[valid-type]
    chat_template_kwargs: refused({}) = None  # type: ignore[valid-type]
    response_format: refused({"type": "text"}) = None  # type: ignore[valid-type]
    tools: refused([]) = None  # type: ignore[valid-type]
    tool_choice: refused("none", "auto") = None  # type: ignore[valid-type]
    parallel_tool_calls: refused(True, False) = None  # type: ignore[valid-type]
    functions: refused([]) = None  # type: ignore[valid-type]
    function_call: refused("none") = None  # type: ignore[valid-type]
    modalities: refused(["text"]) = None  # type: ignore[valid-type]
    audio: refused() = None  # type: ignore[valid-type]
    prediction: refused() = None  # type: ignore[valid-type]
    reasoning_effort: refused("none") = None  # type: ignore[valid-type]
    verbosity: refused() = None  # type: ignore[valid-type]
    service_tier: refused("auto", "default") = None  # type: ignore[valid-type]
    web_search_options: refused() = None  # type: ignore[valid-type]


class Details(Reply):
    """What /generate tells of a sample beside its text."""

    seed: int
    approximate: bool
    satisfied: bool | None
    score: float | None
    checks: list[CheckResult]
    forward_evaluations: ForwardEvaluations
    gate: GateResult
    repair: RepairResult | None


class OpenAIUsage(Reply):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    forward_evaluations: int
    """Rows through the model, all choices together."""


class TokenLogprob(Reply):
    token: str
    logprob: float
    bytes: list[int] | None


class ChosenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Reply):
    content: list[ChosenLogprob]
    refusal: None = None


class CompletionLogprobs(Reply):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class OpenAIChoice(Reply):
    index: int
    finish_reason: Literal["stop", "length"] | None
    astargate: Details | None = None
    """Verdict, ledger and gate; in a stream with the choice's last chunk."""


class CompletionChoice(OpenAIChoice):
    text: str
    logprobs: CompletionLogprobs | None = None


class ReplyMessage(Reply):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(OpenAIChoice):
    message: ReplyMessage
    logprobs: ChatLogprobs | None = None


class OpenAIReply(Reply):
    id: str
    created: int
    model: str
    system_fingerprint: str
    """The model's hash."""
    usage: OpenAIUsage
    policy: ResolvedPolicy
    block_length: int | None


class CompletionReply(OpenAIReply):
    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatReply(OpenAIReply):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
