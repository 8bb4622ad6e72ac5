"""POST /generate: shapes, ledgers, gates and seeds."""

from __future__ import annotations

import math

import pytest

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
HANDOFF = {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.3}, "tail_width": 8}


def body(**fields):
    return {"prompt": "Write one sentence.", "constraint": KEYWORDS, "seed": 7, **fields}


def only(answer):
    (sample,) = answer["samples"]
    return sample


def rows(answer):
    return only(answer)["forward_evaluations"]


@pytest.mark.parametrize(("length", "steps"), [(32, 32), (16, 16), (24, 10), (8, 12)])
def test_full_cfg_costs_two_rows_a_step(server, length, steps):
    spent = rows(server.generate(body(policy={"preset": "full_cfg"}, gen_length=length, steps=steps)))
    assert spent["conditional"] == spent["unconditional"] == steps
    assert spent["total"] == spent["full_cfg_equivalent"] == 2 * steps
    assert spent["saved"] == spent["skipped_by_eos"] == 0


def test_base_costs_one_row_a_step(server):
    answer = server.generate(body(policy={"preset": "base"}, gen_length=16, steps=8))
    assert rows(answer) | {"probe": 0, "repair": 0, "audit": 0} == {
        "conditional": 8, "unconditional": 0, "probe": 0, "repair": 0, "audit": 0, "total": 8,
        "full_cfg_equivalent": 16, "saved": 8, "skipped_by_eos": 0,
    }  # fmt: skip
    assert only(answer)["gate"]["decision"] == "base"
    assert only(answer)["gate"]["handoff_step"] is None


@pytest.mark.parametrize("length", [32, 17, 10])
def test_parallel_tail_costs_what_the_formula_says(server, length):
    answer = server.generate(body(policy=HANDOFF, gen_length=length, steps=length))
    guided = math.floor(0.3 * length + 0.5)
    assert rows(answer)["total"] == 2 * guided + math.ceil((length - guided) / 8)
    assert rows(answer)["saved"] == 2 * length - rows(answer)["total"]
    gate = only(answer)["gate"]
    assert (gate["decision"], gate["source"], gate["handoff_step"]) == ("handoff", "fraction", guided)
    assert gate["handoff_fraction"] == pytest.approx(guided / length)
    assert gate["committed_fraction"] == pytest.approx(guided / length)
    assert gate["fallback_reason"] is None


def test_answer_has_the_contract_s_fields(server):
    answer = server.generate(body(policy={"preset": "full_cfg"}, steps=16))
    assert {"id", "model", "model_hash", "created", "policy", "samples", "usage"} <= set(answer)
    sample = only(answer)
    assert {
        *("index", "seed", "text", "finish_reason", "satisfied", "score", "checks"),
        *("forward_evaluations", "gate", "repair"),
    } <= set(sample)
    assert answer["family"] == "commongen-k3"
    assert [check["name"] for check in sample["checks"]] == ["keyword: dog", "keyword: ball", "keyword: beach"]
    assert sample["satisfied"] is all(check["satisfied"] for check in sample["checks"])
    assert (sample["score"] == 1.0) is sample["satisfied"]
    assert sample["text"]
    assert sample["repair"] is None
    assert answer["usage"]["forward_evaluations"] == sample["forward_evaluations"]["total"]
    assert answer["policy"]["guidance_scale"] == 2.0
    assert answer["policy"]["gate"]["source"] == "never"


def test_v1_path_gives_the_same_text(server):
    request = body(policy=HANDOFF, gen_length=16)
    reply = server.client.post("/v1/generate", json=request)
    assert only(reply.json())["text"] == only(server.generate(request))["text"]


def test_samples_take_consecutive_seeds_and_equal_single_requests(server):
    answer = server.generate(body(policy=HANDOFF, gen_length=16, n=3))
    assert [(s["index"], s["seed"]) for s in answer["samples"]] == [(0, 7), (1, 8), (2, 9)]
    for sample in answer["samples"]:
        alone = only(server.generate(body(policy=HANDOFF, gen_length=16, seed=sample["seed"])))
        assert alone["text"] == sample["text"]
    assert answer["usage"]["forward_evaluations"] == sum(s["forward_evaluations"]["total"] for s in answer["samples"])


def test_a_drawn_seed_is_reported_and_repeats_the_text(server):
    request = body(policy={"preset": "base"}, gen_length=16)
    del request["seed"]
    first = only(server.generate(request))
    assert only(server.generate({**request, "seed": first["seed"]}))["text"] == first["text"]


def test_without_a_policy_the_shipped_gate_of_the_family_decides(server):
    answer = server.generate(body(gen_length=16))
    gate = only(answer)["gate"]
    assert answer["policy"]["preset"] == "handoff"
    assert (gate["source"], gate["fallback_reason"]) == ("policy", None)
    assert gate["version"]
    assert gate["decision"] in {"handoff", "full_cfg"}
    assert (gate["decision"] == "handoff") == (rows(answer)["total"] < 32)


UNMEASURED = {"preset": "handoff", "guidance_scale": 4.0}
"""A scale at which no gate was measured."""


def test_without_a_gate_for_the_setting_the_pooled_one_steps_in(server):
    """In a serial tail, with what is known of it; the gate that was asked for is in the reason."""
    answer = server.generate(body(gen_length=16, policy={**UNMEASURED, "tail_width": 4}))
    gate = only(answer)["gate"]
    assert (gate["source"], gate["version"], gate["evidence"]) == ("drained", "pooled-1", "pooled")
    assert "commongen-k3" in gate["fallback_reason"]
    assert gate["measured_loss"]["low"] <= gate["measured_loss"]["loss"] <= gate["measured_loss"]["high"]
    resolved = answer["policy"]
    assert (resolved["gate"]["source"], resolved["tail_width"], resolved["on_fallback"]) == ("drained", 1, "drained")
    assert resolved["gate"]["threshold"] is not None
    spent, step = rows(answer), gate["handoff_step"]
    assert spent["total"] == 2 * step + 16 - step
    again = {name: resolved["gate"][name] for name in ("threshold", "earliest") if resolved["gate"][name] is not None}
    named = {**UNMEASURED, "gate": {"source": "drained", **again}}
    same = only(server.generate(body(gen_length=16, policy=named)))
    assert same["text"] == only(answer)["text"]
    assert (same["gate"]["evidence"], same["gate"]["fallback_reason"]) == ("none", None)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"gate": {"source": "risk", "margin": 0.01}}, "margin"),
        ({"gate": {"source": "drained", "margin": 0.01}}, "drained threshold"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_full_cfg(server, policy, reason):
    """A margin is a promise about the family; a gate that was measured over all settings makes none."""
    answer = server.generate(body(gen_length=16, policy={**UNMEASURED, **policy}))
    gate = only(answer)["gate"]
    assert (gate["decision"], gate["evidence"], gate["measured_loss"]) == ("full_cfg", "none", None)
    assert reason in gate["fallback_reason"]
    assert rows(answer)["total"] == 32


def test_guidance_first_stays_where_it_was_measured(server):
    """Another guidance-first order becomes confidence order, as it does under full CFG."""
    first = {"order": "guidance_boost", "guided_width": 8, "boost_threshold": 0.8}
    for order, settings in (("guidance_boost", first), ("confidence", {"order": "boost_confidence"})):
        answer = server.generate(body(gen_length=16, policy={**UNMEASURED, **settings}))
        assert (answer["policy"]["order"], only(answer)["gate"]["evidence"]) == (order, "pooled")


def test_outside_what_was_measured_nothing_is_known(server):
    for change in ({"policy": {"guidance_scale": 12.0}}, {"temperature": 2.0}, {"top_p": 0.5}, {"steps": 3}):
        gate = only(server.generate(body(gen_length=16, **change)))["gate"]
        assert (gate["source"], gate["version"], gate["evidence"]) == ("drained", "pooled-1", "none")
        assert gate["measured_loss"] is None


def test_without_a_constraint_requests_save_too(server):
    for setting in ({}, {"temperature": 0}, {"gen_length": 64}, {"gen_length": 8}):
        answer = server.generate({"prompt": "Write one sentence about a dog.", "seed": 7, **setting})
        assert only(answer)["gate"]["evidence"] == "pooled"
        assert rows(answer)["saved"] >= 0.15 * rows(answer)["full_cfg_equivalent"]


def test_full_cfg_is_one_word_away(server):
    answer = server.generate(body(gen_length=16, policy={**UNMEASURED, "on_fallback": "full_cfg"}))
    gate = only(answer)["gate"]
    assert (gate["source"], gate["version"], gate["decision"]) == ("policy", None, "full_cfg")
    assert "commongen-k3" in gate["fallback_reason"]
    assert rows(answer)["total"] == 32


def test_fallback_base_never_guides(server):
    answer = server.generate(body(gen_length=16, policy={**UNMEASURED, "on_fallback": "base"}))
    assert only(answer)["gate"]["decision"] == "base"
    assert only(answer)["gate"]["fallback_reason"]
    assert rows(answer)["total"] == rows(answer)["conditional"] == 16


def test_drained_and_never_gates_need_no_learning(server):
    for setting in ({"source": "drained", "threshold": 0.5}, {"source": "never"}):
        gate = only(server.generate(body(gen_length=16, policy={"preset": "handoff", "gate": setting})))["gate"]
        assert gate["fallback_reason"] is None
        assert gate["decision"] in {"handoff", "full_cfg"}
    assert gate["decision"] == "full_cfg"


def test_resolved_policy_shows_the_gate_s_defaults(server):
    answer = server.generate(body(gen_length=8, policy={"gate": {"source": "drained", "recheck": 4}}))
    assert answer["policy"]["gate"]["threshold"] == 0.5


def test_trace_holds_every_commit(server):
    answer = server.generate(body(policy=HANDOFF, gen_length=16, trace=True))
    trace = only(answer)["trace"]
    assert len(trace["tokens"]) == len(trace["pieces"]) == 16
    positions = [p for step in trace["steps"] for p in step["positions"]]
    assert sorted(positions) == list(range(16))
    for step in trace["steps"]:
        assert step["tokens"] == [trace["tokens"][p] for p in step["positions"]]
        assert step["pieces"] == [trace["pieces"][p] for p in step["positions"]]
        assert step["masked_confidence"]["count"] == step["masked"]
    assert [step["phase"] for step in trace["steps"]] == ["guided"] * 5 + ["base"] * 2


def test_trace_does_not_change_the_text(server):
    request = body(policy=HANDOFF, gen_length=16)
    assert only(server.generate({**request, "trace": True}))["text"] == only(server.generate(request))["text"]


def test_eos_fill_stands_apart_from_saving(server):
    request = {"prompt": "Write one short sentence.", "gen_length": 48, "seed": 3, "policy": {"preset": "full_cfg"}}
    spent = rows(server.generate({**request, "eos_fill": True}))
    assert spent["total"] + spent["skipped_by_eos"] + spent["saved"] == spent["full_cfg_equivalent"] == 96


def test_the_instruction_is_rendered_unless_told_otherwise(server):
    request = {"prompt": "Write one sentence.", "constraint": KEYWORDS, "gen_length": 8, "policy": {"preset": "base"}}
    with_it = server.generate(request)["usage"]["prompt_tokens"]
    assert with_it > server.generate({**request, "render_constraint": False})["usage"]["prompt_tokens"]
    alone = server.generate({k: v for k, v in request.items() if k != "prompt"})
    assert 0 < alone["usage"]["prompt_tokens"] < with_it


def test_default_canvas_grows_with_the_constraint(server):
    small = server.generate({"constraint": KEYWORDS, "policy": {"preset": "base"}})
    model = server.client.get("/v1/models").json()["data"][0]
    assert small["gen_length"] == small["steps"] == model["defaults"]["gen_length"]
    words = {"type": "word_count", "min_words": 30, "max_words": 40}
    assert server.generate({"constraint": words, "policy": {"preset": "base"}})["gen_length"] > 30


def test_a_named_family_may_be_the_constraint_s_own(server):
    assert server.generate(body(family="commongen-k3", gen_length=8, policy={"preset": "base"}))["family"]


def test_block_length_and_top_p(server):
    answer = server.generate(
        body(gen_length=16, steps=16, block_length=8, top_p=0.9, temperature=0.7, policy={"preset": "base"}, trace=True)
    )
    assert answer["block_length"] == 8
    first = [p for step in only(answer)["trace"]["steps"][:8] for p in step["positions"]]
    assert sorted(first) == list(range(8))


def test_temperature_zero_does_not_depend_on_the_seed(server):
    request = body(policy={"preset": "base"}, gen_length=16, temperature=0.0)
    assert only(server.generate(request))["text"] == only(server.generate({**request, "seed": 99}))["text"]
