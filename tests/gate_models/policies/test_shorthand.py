"""Short names of policies and gates as the objects that the API takes."""

from __future__ import annotations

import pytest

from gate_models.policies.shorthand import MAX_NAME, gate_object, policy_object
from service.schemas.policy import PolicyRequest


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("auto", {"preset": "auto"}),
        ("auto:90", {"preset": "auto", "budget_rows": 90}),
        ("handoff", {"preset": "handoff"}),
        ("handoff:0.3:k4", {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.3}, "tail_width": 4}),
        ("parallel_tail:k2", {"preset": "parallel_tail", "tail_width": 2}),
        ("drained", {"preset": "handoff", "gate": {"source": "drained"}}),
        ("drained:0.5:m4", {"preset": "handoff", "gate": {"source": "drained", "threshold": 0.5, "recheck": 4}}),
        ("value:k8", {"preset": "handoff", "gate": {"source": "value"}, "tail_width": 8}),
        ("value:0.002", {"preset": "handoff", "gate": {"source": "value", "row_price": 0.002}}),
        ("full_cfg:w1.5", {"preset": "full_cfg", "guidance_scale": 1.5}),
        ("base:k4:spaced", {"preset": "base", "tail_width": 4, "tail_rule": "spaced"}),
        (
            "handoff:0.25:repair3x2-random",
            {
                "preset": "handoff",
                "gate": {"source": "fraction", "fraction": 0.25},
                "repair": {"max_rounds": 2, "selector": "random"},
            },
        ),
    ],
)
def test_a_name_says_its_fields_and_leaves_the_rest_open(name: str, fields: dict[str, object]) -> None:
    assert policy_object(name) == fields
    assert PolicyRequest.model_validate(fields).preset == fields["preset"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hand_off", "did you mean 'handoff'"),
        ("full_cfg:zz", "option 'zz' is unknown"),
        ("full_cfg:best3", "of studies alone"),
        ("drained:7", "threshold"),
        ("a" * (MAX_NAME + 1), "at most 200 characters"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        policy_object(name)


def test_a_gate_is_its_source_and_one_number() -> None:
    assert gate_object("value") == {"source": "value"}
    assert gate_object("risk:0.05") == {"source": "risk", "margin": 0.05}
    assert gate_object("fraction:0.3") == {"source": "fraction", "fraction": 0.3}
    for wrong, said in (("valu", "did you mean 'value'"), ("never:1", "takes no number"), ("value:x", "its row_price")):
        with pytest.raises(ValueError, match=said):
            gate_object(wrong)
