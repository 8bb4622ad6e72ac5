"""Client of astargate, the inference server for masked diffusion language models.

`Client` and `AsyncClient` talk to a server; `constraints` and `policies` have a function for everything that it takes.
"""

from __future__ import annotations

from astargate_client.async_client import AsyncClient
from astargate_client.client import Client
from astargate_client.committor_calls import JobCancelledError, JobError, JobFailedError, JobTimeoutError
from astargate_client.constraints import (
    all_of,
    avoid,
    capital_frequency,
    collie_c06a,
    collie_c07,
    keyword_frequency,
    keywords,
    length_ratio,
    letter_frequency,
    no_comma,
    sentiment,
    word_count,
)
from astargate_client.display.canvas import Canvas
from astargate_client.display.replies import CommittorJob, CommittorResult, GenerateResponse, Sample, Trace
from astargate_client.errors import (
    AstargateError,
    AuthenticationError,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ServerError,
    StatusError,
    StreamBrokenError,
    TimedOutError,
    UnavailableError,
    UnreadableAnswerError,
)
from astargate_client.events import Event, UnknownEvent
from astargate_client.policies import (
    auto,
    base,
    drained,
    fraction,
    full_cfg,
    gate,
    handoff,
    parallel_tail,
    reopen_repair,
    risk,
    value,
)
from astargate_client.specs import Constraint, Gate, Policy
from astargate_client.streams import AsyncStream, Stream
from astargate_client.wire import HandoffEvent, ReopenEvent, StepEvent

__all__ = [
    "AstargateError",
    "AsyncClient",
    "AsyncStream",
    "AuthenticationError",
    "Canvas",
    "Client",
    "CommittorJob",
    "CommittorResult",
    "ConflictError",
    "ConnectionFailedError",
    "Constraint",
    "DeadlineError",
    "Event",
    "Gate",
    "GenerateResponse",
    "HandoffEvent",
    "InvalidRequestError",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobTimeoutError",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "Policy",
    "ReopenEvent",
    "Sample",
    "ServerError",
    "StatusError",
    "StepEvent",
    "Stream",
    "StreamBrokenError",
    "TimedOutError",
    "Trace",
    "UnavailableError",
    "UnknownEvent",
    "UnreadableAnswerError",
    "all_of",
    "auto",
    "avoid",
    "base",
    "capital_frequency",
    "collie_c06a",
    "collie_c07",
    "drained",
    "fraction",
    "full_cfg",
    "gate",
    "handoff",
    "keyword_frequency",
    "keywords",
    "length_ratio",
    "letter_frequency",
    "no_comma",
    "parallel_tail",
    "reopen_repair",
    "risk",
    "sentiment",
    "value",
    "word_count",
]
