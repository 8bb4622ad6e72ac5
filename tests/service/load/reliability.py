"""Writes docs/results/reliability.md: what has broken a server, the test that holds each, its limits, and a soak.

`python -m tests.service.load.soak --requests 10000 --output docs/results/reliability.json` attacks a server, and
`python -m tests.service.load.reliability` writes the page from its figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from decoding.constraints.base import fields
from decoding.constraints.general import patterns
from decoding.constraints.json import schema
from service.config.settings import Settings
from service.http import body, connections
from service.schemas.base import MAX_PROMPT_CHARACTERS
from service.storage import database
from tests.service.load.soak import MORE_FILES, MORE_MEMORY, MORE_THREADS
from tests.service.process import ROOT

FIGURES: Final = ROOT / "docs" / "results" / "reliability.json"
PAGE: Final = ROOT / "docs" / "results" / "reliability.md"

CONNECTIONS, DEAR, DATABASE = "test_connections.py", "test_dear_constraints.py", "test_database_hangs.py"
BREAK: Final = "tests/break/"
FAULTS: Final[tuple[tuple[str, str], ...]] = (
    ("A small body of 20,000 phrases stalls everybody",
     f"{BREAK}{DEAR}::test_thousands_of_phrases_hold_nobody_up"),
    ("Headers without bound, before authentication",
     f"{BREAK}{CONNECTIONS}::test_headers_without_end_are_refused_and_not_kept"),
    ("Silent connections use up all file descriptors",
     f"{BREAK}{CONNECTIONS}::test_a_crowd_of_silent_connections_leaves_room"),
    ("A database that hangs stalls requests and shutdown",
     f"{BREAK}{DATABASE}::test_a_hanging_database_stalls_nobody_and_no_shutdown"),
    ("A race loses finished continuations of a committor job",
     "tests/service/committor/test_run.py::test_a_continuation_that_ends_between_two_looks_is_kept"),
    ("A damaged gate file stops the server",
     "tests/gate_models/gates/learned/test_artifact.py::test_damaged_arrays_are_refused_whatever_the_reader_raises"),
    ("A file of API keys that holds none opens the server",
     f"{BREAK}test_settings.py::test_a_file_without_keys_opens_no_server"),
    ("`Upgrade: h2c` loses the body", f"{BREAK}{CONNECTIONS}::test_h2c_keeps_the_body"),
    ("`Upgrade: websocket` bypasses the guard and keeps the server alive",
     f"{BREAK}{CONNECTIONS}::test_a_websocket_passes_the_guard_and_keeps_no_server_alive"),
    ("Failures of the engine are not logged under the request's id",
     "tests/service/test_lifecycle.py::test_a_model_that_fails_gives_500_and_the_server_goes_on"),
    ("A wide guided run ends before the state that is asked for: 500",
     f"{BREAK}test_bodies.py::test_a_body_at_fault_is_told_where"),
    ("A number of 400 digits: 500", f"{BREAK}test_bodies.py::test_a_body_at_fault_is_told_where"),
    ("A folder of gates that is missing is passed over",
     "tests/service/config/test_settings.py::test_a_folder_of_gates_must_be_there"),
    ("An empty host listens everywhere", f"{BREAK}test_settings.py::test_an_empty_host_is_refused"),
    ("A refusal of a huge array blocks the event loop",
     f"{BREAK}test_requests.py::test_a_large_refusal_costs_little"),
    ("A model with a nonsensical config gets ready",
     "tests/service/test_lifecycle.py::test_a_model_whose_config_is_nonsense_never_gets_ready"),
    ("The cache of word lists is not bounded in bytes",
     "tests/decoding/constraints/text/test_words.py::test_the_cache_of_matchers_is_bounded_in_bytes"),
    ("A stream to an HTTP/1.0 client is chunked", f"{BREAK}{CONNECTIONS}::test_an_http_1_0_client_gets_no_chunks"),
    ("One damaged job holds up all others",
     "tests/service/committor/test_store.py::test_a_damaged_row_holds_up_no_other"),
    ("The database file can be read by everybody",
     "tests/service/storage/test_database.py::test_a_file_is_for_its_owner_alone"),
)  # fmt: skip
"""The twenty of the first break test, in its order."""
LATER: Final[tuple[tuple[str, str], ...]] = (
    ("A small JSON Schema is tried on its own values for minutes",
     "tests/decoding/constraints/json/test_json.py::test_values_that_cost_too_much_to_try_are_refused_in_time"),
    ("A body with both lengths hides a second request from a proxy",
     f"{BREAK}{CONNECTIONS}::test_a_body_that_ends_where_one_likes_is_refused"),
    ("Of two headers `Authorization` the first is taken",
     f"{BREAK}{CONNECTIONS}::test_a_header_that_stands_twice_admits_nobody"),
    ("A model that ends the engine's thread leaves every client waiting",
     f"{BREAK}test_faults.py::test_an_engine_that_ends_ends_the_server_and_leaves_no_client_waiting"),
    ("A predicate that exits leaves its request waiting",
     f"{BREAK}test_faults.py::test_a_predicate_that_ends_its_thread_fails_its_own_request_alone"),
    ("JSON that is too deep is answered without a reason",
     f"{BREAK}test_requests.py::test_json_that_no_parser_takes_is_told_what_is_wrong"),
)  # fmt: skip
"""Faults of the later rounds."""
INJECTED: Final[tuple[tuple[str, str], ...]] = (
    ("the database stops answering", f"{BREAK}{DATABASE}::test_a_database_that_goes_on_is_used_again"),
    ("a statement takes too long", f"{BREAK}{DATABASE}::test_a_slow_statement_is_ended"),
    ("the disk is full", f"{BREAK}test_faults.py::test_a_full_disk_refuses_jobs_and_nothing_else"),
    ("the database's file turns to noise",
     f"{BREAK}test_faults.py::test_a_database_file_that_turns_to_noise_refuses_jobs_and_nothing_else"),
    ("the model raises on every step",
     f"{BREAK}test_faults.py::test_a_model_that_fails_is_answered_for_and_used_again"),
    ("the engine's thread ends",
     f"{BREAK}test_faults.py::test_an_engine_that_ends_ends_the_server_and_leaves_no_client_waiting"),
    ("the clock jumps a day",
     f"{BREAK}test_faults.py::test_a_clock_that_jumps_ends_no_deadline_no_lease_and_no_limit"),
    ("a gate raises", "tests/decoding/gates/test_builtin.py::test_a_gate_that_raises_leaves_guidance_on"),
    ("clients send or read slowly", f"{BREAK}{CONNECTIONS}::test_answers_that_nobody_reads_are_given_up"),
)  # fmt: skip


def limits() -> dict[str, str]:
    """What a stranger is held to, with the setting that changes it."""
    settings = Settings(api_keys="")
    mine = ("max_connections", "max_header_bytes", "header_seconds", "body_seconds", "stalled_seconds",
            "max_body_bytes", "max_samples", "max_request_tokens", "max_request_rows", "max_queued_rows",
            "max_deadline", "committor_max_rows", "committor_jobs_per_key", "committor_jobs")  # fmt: skip
    fixed = {
        "keys of a body's objects": body.MAX_KEYS,
        "arrays and objects of a body": body.MAX_CONTAINERS,
        "values of a body": body.MAX_VALUES,
        "characters of a prompt": MAX_PROMPT_CHARACTERS,
        "characters of a constraint": fields.MAX_CHARACTERS,
        "phrases of a word list": fields.MAX_LEXICON,
        "members of a composition": fields.MAX_MEMBERS,
        "characters of a pattern": patterns.MAX_PATTERN,
        "characters of a JSON Schema": schema.MAX_SCHEMA,
        "keyword applications of a JSON Schema, on a text or on its own values": schema.MAX_STEPS,
        "seconds that SQLite waits for another writer": database.BUSY_SECONDS,
        "mean bytes of a body's chunks, at least": connections.SMALLEST_CHUNK,
    }
    return {f"`--{name.replace('_', '-')}`": f"{getattr(settings, name):,}" for name in mine} | {
        name: f"{value:,}" for name, value in fixed.items()
    }


def table(head: tuple[str, str], rows: Iterable[tuple[str, object]]) -> str:
    lines = [f"| {left} | {right} |" for left, right in rows]
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *lines])


def page(figures: Mapping[str, Any]) -> str:
    """The whole page."""
    before, after = figures["before"], figures["after"]
    held = [
        (
            "memory",
            f"{before['memory'] >> 20} to {after['memory'] >> 20} MiB (may grow by {MORE_MEMORY >> 20})",
        ),
        ("open files", f"{before['files']} to {after['files']} (by {MORE_FILES})"),
        ("threads", f"{before['threads']} to {after['threads']} (by {MORE_THREADS}, the pools' own)"),
        ("rows that the engine ran", f"{figures['rows']:,}; booked to a request: {figures['booked']:,}"),
        ("committor jobs", ", ".join(f"{count} {status}" for status, count in figures["jobs"].items())),
        ("connections ended early", ", ".join(f"{n} {why}" for why, n in figures["connections_refused"].items())),
        ("a plain request afterwards", figures["next_status"]),
    ]
    asked = " ".join(f"--{name} {figures[name]}" for name in ("requests", "workers", "seed"))
    command = f"python -m tests.service.load.soak {asked}"
    outcomes = [(kind, f"{count:,}") for kind, count in figures["outcomes"].items()]
    return f"""# Reliability

Written by `python -m tests.service.load.reliability`. What a server defends itself against is on
[the page of threats](../threat-model.md).

## What has broken a server

Each was found by an attack on a real process and is held by a test that failed before. The first twenty:

{table(("fault", "test"), ((name, f"`{test}`") for name, test in FAULTS))}

Later rounds, with other values and other doors:

{table(("fault", "test"), ((name, f"`{test}`") for name, test in LATER))}

## What fails beneath it

Faults that tests inject into a running server; it answers all that does not need the broken part.

{table(("fault", "test"), ((name, f"`{test}`") for name, test in INJECTED))}

## Limits

{table(("limit", "by default"), limits().items())}

## A soak

```
{command}
```

On model `{figures["model_hash"]}` ([numbers](reliability.json)): valid and broken bodies, floods, streams that are left
or hardly read, deadlines, raw bytes that are no HTTP, committor jobs.
{figures["requests"]:,} requests in {figures["seconds"]:,.0f} s; no 5xx but for a request's own deadline, nothing lost.
What was held after a fifth of them, and at the end:

{table(("what", "figure"), held)}

What became of them ("left" and "cut off" went before their answer):

{table(("outcome", "requests"), outcomes)}
"""


def main() -> None:
    PAGE.write_text(page(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
