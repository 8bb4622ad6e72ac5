"""docs/constraints.md: a row for every type, whose example is one."""

from __future__ import annotations

import json
import re

import pytest

from decoding.constraints import REGISTRY, parse
from tests.decoding.constraints import reference

PAGE = (reference.ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \|.*\| `(\{.*\})` \|$", PAGE, flags=re.MULTILINE))


def test_every_type_has_a_row():
    assert set(ROWS) == set(REGISTRY)


@pytest.mark.parametrize("kind", ROWS)
def test_the_example_of_a_row_is_taken(kind):
    constraint = parse(json.loads(ROWS[kind]))
    assert constraint.type == kind
    assert constraint.instruction()
