"""The canvas that a request without `gen_length` gets."""

from __future__ import annotations

import pytest

from decoding.constraints import FAMILIES, parse
from gate_models.offline.benchmarks.tasks import load_task
from service.generation.canvas import ROOMY, fitting_canvas, needed_tokens
from service.generation.request import CanvasRequest
from tests.shipped import mini


@pytest.fixture(scope="module")
def model():
    return mini()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gets_the_canvas_that_its_gates_are_measured_on(model, family):
    """What ships for a family must serve the request that leaves the canvas open."""
    prompts, fitted = load_task(family), 0
    if len({prompt.gen_length for prompt in prompts}) > 1:
        assert family == "collie-c06a"  # its canvas follows its word count
        return
    for prompt in prompts:
        constraint = parse(prompt.constraint)
        canvas = fitting_canvas(CanvasRequest(), constraint, model.codec, model.spec)
        if needed_tokens(constraint, model.codec) <= ROOMY * prompt.gen_length:
            assert (canvas.gen_length, canvas.steps) == (prompt.gen_length, prompt.steps)
            fitted += 1
        else:
            assert canvas.gen_length >= prompt.gen_length
    assert fitted > 10


def test_a_constraint_that_fills_its_family_s_canvas_gets_more(model):
    words = [f"word{index}long" for index in range(3)]
    constraint = parse({"type": "keywords", "keywords": words})
    needed = needed_tokens(constraint, model.codec)
    canvas = fitting_canvas(CanvasRequest(), constraint, model.codec, model.spec)
    assert needed > ROOMY * model.spec.default_canvas or canvas.gen_length == model.spec.default_canvas
    assert canvas.gen_length >= needed / ROOMY
