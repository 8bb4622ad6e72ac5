"""Templates on models of the published architectures: byte-level vocabularies, special tokens, shifted logits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decoding.engine.engine import Engine
from decoding.models.registry import load_model
from decoding.models.tools.make_random import make_random
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job, Sampling
from decoding.request.template import Template
from decoding.sampling.noise import NoiseKey

SOURCES = (
    "Dear [blank:2], thank  you for [blank:5].",
    "[blank:3]naïve café 犬🙂[blank:2]\n\tdef f(x):\n\t\treturn [blank:4]",
    r"\[blank:2] \\ <b>[blank:6]</b>",
)


@pytest.fixture(scope="module", params=["llada", "dream"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / request.param
    make_random(request.param, folder)
    return load_model(str(folder))


@pytest.mark.parametrize("source", SOURCES)
def test_fixed_texts_stay_to_the_byte(model, source):
    template = Template.parse(source)
    canvas = template.canvas(model.codec, model.spec)
    whole = Job(
        prompt_ids=tuple(model.codec.encode_prompt("Write.")),
        gen_length=len(canvas.ids),
        steps=len(canvas.open),
        policy=resolve_policy("full_cfg", {}),
        noise=NoiseKey(3),
        sampling=Sampling(suppress_eos=True),
        template=canvas,
    )
    engine = Engine(model)
    handles = [engine.submit(replace(whole, noise=NoiseKey(seed))) for seed in range(4)]
    while engine.step():
        pass
    for handle in handles:
        outcome = handle.result()
        text, fillings = whole.text(model.codec, outcome.content), canvas.fillings(model.codec, outcome.content)
        rest = "".join(literal + filling for literal, filling in zip(template.literals, [*fillings, ""], strict=True))
        assert text == rest
        assert not {outcome.tokens[at] for at in canvas.open} & {model.spec.mask_id, *model.spec.end_ids}


def test_a_special_token_that_is_typed_is_text(model):
    end = model.codec.pieces([model.spec.end_ids[0]])[0]
    canvas = Template.parse(f"a {end} [blank:2]").canvas(model.codec, model.spec)
    fixed = [token for at, token in enumerate(canvas.ids[:-1]) if at not in canvas.open]
    assert not set(fixed) & {model.spec.mask_id, *model.spec.end_ids}
    assert canvas.text(model.codec, canvas.ids).startswith(f"a {end} ")
