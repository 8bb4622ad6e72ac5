"""Templates: how they are read, that their fixed texts stay as they are, and that only blanks are decoded."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.policy.gate import GateSettings
from decoding.policy.repair import SELECTORS, Repair
from decoding.request.job import Job, Sampling, regime_of
from decoding.request.template import Blank, Template, TemplateError
from decoding.request.validation import JobError
from tests.decoding.tiny import job, tiny_model
from tests.shipped import mini

LITERALS = [
    *(
        "Dear ",
        ", thank you for ",
        ".",
        " a  b ",
        "\n\t",
        "",
        " ",
        "C:\\x",
        "[blank:",
        "[blank:3]",
        "[",
        "]",
        "\\",
        "\\[",
    ),
    *(
        "NASA's 3rd",
        '"Hello," he said. ',
        "İstanbul — naïve café ",
        "犬と",
        "🙂 ",
        "iPhone",
        "don't ",
        "(see [1]) ",
        "...",
        "i ",
    ),
]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def template_job(model, source: str, **fields) -> Job:
    canvas = Template.parse(source).canvas(model.codec, model.spec)
    whole = job(model, length=len(canvas.ids), steps=len(canvas.open), sampling=Sampling(suppress_eos=True), **fields)
    return replace(whole, template=canvas)


def decoded(model, *jobs, invariant: bool = False):
    with Engine(model, runner=Runner(model, invariant=invariant)) as engine:
        return [handle.result(600) for handle in engine.submit_all(jobs)]


def test_blanks_and_escapes_are_read():
    read = Template.parse(r"Dear [blank:2], \[blank:3] \\ [1] [blanket] [blank:3-8]")
    assert read.literals == ("Dear ", r", [blank:3] \ [1] [blanket] ", "")
    assert read.blanks == (Blank(2, 2), Blank(3, 8))
    assert not read.settled
    assert read.longest.settled


@pytest.mark.parametrize(
    "source",
    [
        *("", "no blank", "[blank]", "[blank:]", "[blank:0]", "[blank:5-3]", "[blank:-2]", "[blank:x]", "[blank:2"),
        *(r"\[blank:2]", "[blank:2] and [blank:3", "[blank:1.5]", "[blank:9999999]"),
    ],
)
def test_a_template_without_sense_says_what_to_write(source):
    with pytest.raises(TemplateError, match=r"\[blank:3\]|at least one token"):
        Template.parse(source)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_written_is_read_back(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 4)
    literals = tuple("".join(draw.choices(LITERALS, k=draw.randint(0, 3))) for _ in range(count + 1))
    blanks = tuple(Blank(low, low + draw.choice((0, 0, 3))) for low in draw.choices(range(1, 9), k=count))
    template = Template(literals, blanks)
    assert Template.parse(template.source()) == template


def test_fixed_texts_of_a_thousand_templates_stay_as_they_are():
    """Whatever tokens stand in the blanks: the text is the fixed texts in order, one filling between each two."""
    shipped = mini()
    codec, spec = shipped.codec, shipped.spec
    draw = random.Random(7)
    writable = [token for token in range(spec.vocab_size) if token not in {*spec.suppressed_ids, *spec.end_ids}]
    for _ in range(1000):
        count = draw.randint(1, 3)
        literals = tuple("".join(draw.choices(LITERALS, k=draw.randint(0, 3))) for _ in range(count + 1))
        template = Template(literals, tuple(Blank(n, n) for n in draw.choices(range(1, 5), k=count)))
        canvas = template.canvas(codec, replace(spec, max_canvas=200))
        tokens = list(canvas.ids)
        for position in canvas.open:
            tokens[position] = draw.choice(writable)
        fillings = canvas.fillings(codec, tokens)
        text, rest = canvas.text(codec, tokens), ""
        for literal, filling in zip(literals, [*fillings, ""], strict=True):
            rest += literal + filling
            assert filling == filling.strip()
        assert text == rest
        assert [token for at, token in enumerate(tokens) if at not in canvas.open] == [
            token for token in canvas.ids if token != spec.mask_id
        ]


def test_a_filling_is_written_as_its_place_asks():
    shipped = mini()
    codec = shipped.codec
    canvas = Template.parse("I like [blank:1]. [blank:1] bark.").canvas(codec, shipped.spec)
    tokens = list(canvas.ids)
    for start, _ in canvas.spans:
        tokens[start] = codec.encode("dogs")[0]
    assert canvas.text(codec, tokens) == "I like dogs. Dogs bark."


def test_only_blanks_are_decoded_and_paid_for(model):
    request = template_job(model, "a b [blank:3] c [blank:4] d", preset="handoff", fraction=0.5)
    (outcome,) = decoded(model, request)
    canvas = request.template
    assert outcome.ledger.total == 2 * 4 + 3  # floor(7 / 2 + 1/2) = 4 guided steps of 7
    assert {at for stats in outcome.trace.steps for at in stats.positions} == set(canvas.open)
    kept = [at for at in range(request.gen_length) if at not in canvas.open]
    assert [outcome.tokens[at] for at in kept] == [canvas.ids[at] for at in kept]
    assert not {outcome.tokens[at] for at in canvas.open} & {*model.spec.end_ids, model.spec.mask_id}
    assert outcome.finish_reason == "stop"
    assert outcome.job.text(model.codec, outcome.content).startswith("a b ")
    assert regime_of(request, "hash").eos == "template"
    assert regime_of(request, "hash").gen_length == 7


@pytest.mark.parametrize("policy", [{}, {"tail_width": 3}, {"tail_width": 3, "tail_rule": "spaced"}])
def test_a_template_is_the_same_as_its_canvas_given_as_a_state(model, policy):
    request = template_job(model, "a [blank:5] b [blank:3]", preset="handoff", fraction=0.4, policy=policy, seed=3)
    state = replace(request, template=None, start=request.template.ids)
    one, other = decoded(model, request, state)
    assert one.tokens == other.tokens


def test_a_template_s_text_does_not_depend_on_its_batch(model):
    requests = [template_job(model, "a [blank:5] b [blank:3] c", seed=seed) for seed in range(4)]
    others = [job(model, length=9, seed=seed) for seed in range(5)]
    together = decoded(model, *requests, *others, invariant=True)
    alone = [decoded(model, request, invariant=True)[0] for request in requests]
    assert [outcome.tokens for outcome in together[:4]] == [outcome.tokens for outcome in alone]
    assert len({outcome.tokens for outcome in alone}) > 1


@pytest.mark.parametrize("selector", SELECTORS)
def test_repair_opens_blanks_alone(model, selector):
    impossible = parse({"type": "keyword_frequency", "keyword": "zz", "relation": "at_least", "count": 2})
    repair = Repair(selector=selector, max_rounds=2, reopen=3)
    policy = {"repair": repair, "gate": GateSettings("never")}
    request = template_job(model, "a b [blank:3] c [blank:4] d", preset="handoff", policy=policy)
    (outcome,) = decoded(model, replace(request, predicate=impossible))
    reopened = {at for attempted in outcome.passes for at in attempted.reopened}
    assert reopened
    assert reopened <= set(request.template.open)
    for attempted in outcome.passes:
        assert [attempted.tokens[at] for at in (0, 1, 5, 10)] == [request.template.ids[at] for at in (0, 1, 5, 10)]
        assert attempted.text.startswith("a b ")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"block_length": 4}, "block_length"),
        ({"sampling": Sampling()}, "suppress_eos"),
        ({"gen_length": 9, "steps": 9}, "template"),
    ],
)
def test_a_job_that_contradicts_its_template_is_refused(model, changes, field):
    request = template_job(model, "a b [blank:3] c [blank:4] d")
    assert request.gen_length == 12
    with pytest.raises(JobError) as refused:
        decoded(model, replace(request, **({"steps": 12} | changes)))
    assert refused.value.param == field


def test_each_seed_draws_its_own_length_and_every_length_comes():
    template = Template.parse("[blank:2-4] and [blank:1]")
    lengths = [template.drawn(seed).blanks[0].longest for seed in range(300)]
    assert {length: lengths.count(length) > 60 for length in (2, 3, 4)} == {2: True, 3: True, 4: True}
    assert template.drawn(5) == template.drawn(5)
    assert {template.drawn(seed).blanks[1] for seed in range(20)} == {Blank(1, 1)}
