"""Schemathesis over the OpenAPI document: no 5xx, and no status, type or body that the document does not have."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service import openapi

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20
"""Of each operation."""
DECODING = ("/generate", "/v1/completions", "/v1/chat/completions")
OPERATIONS = [result.ok() for result in schemathesis.openapi.from_path(str(openapi.FILE)).get_all_operations()]
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, max_examples=EXAMPLES)


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS])
def test_every_operation_is_as_documented(server, operation):
    @settings(QUIET)
    @given(case=operation.as_strategy())
    def check(case):
        if case.path in DECODING and isinstance(case.body, dict):
            # What is valid may take minutes: it is cut short, in a stream, where that is an event and no 504.
            case.body = {**case.body, "deadline_s": 1.0, "stream": True}
        response = case.call(base_url=server.url, timeout=600)
        case.validate_response(response, checks=CHECKS)

    check()


def test_the_document_has_the_paths(server):
    assert {operation.path for operation in OPERATIONS} >= {*DECODING, "/v1/models", "/health/ready", "/metrics"}
