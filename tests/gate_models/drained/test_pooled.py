"""The pooled threshold: settings that cover what requests ask for, pairs as served, a choice that can refuse."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest

from decoding.engine.engine import Engine
from decoding.gates.builtin import DrainedGate
from decoding.models.generation import GenerationConfig
from decoding.request.job import regime_of
from gate_models.gates.calibrated.pooled import names_of, read_pooled, shipped_pooled
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.drained import pooled as own
from gate_models.offline.drained.draws import CANVASES, TEMPERATURES, WEIGHTS, Draw, draws
from gate_models.offline.drained.settings import PooledSettings
from gate_models.offline.drained.table import pooled_table, pooled_tables
from tests.decoding.tiny import tiny_model
from tests.shipped import mini

PLAN = PooledSettings(tasks=("few-keywords", "commongen-k3"), pairs=40)


def test_every_value_of_every_factor_is_drawn() -> None:
    drawn = list(draws(mini().spec, PooledSettings()))
    groups: dict[str, set[str]] = {}
    for draw in drawn:
        for factor, value in draw.groups.items():
            groups.setdefault(factor, set()).add(value)
    assert groups["guidance_scale"] == {f"{weight:g}" for weight in WEIGHTS}
    assert groups["temperature"] == {f"{temperature:g}" for temperature in TEMPERATURES}
    longest = mini().spec.max_canvas
    assert groups["gen_length"] == {str(length) for length in CANVASES if length <= longest}
    assert groups["blocks"] == {"undivided", "blocks"}
    assert groups["order"] == {"confidence", "guidance_boost"}
    assert len(groups["family"]) >= 15
    assert all(draw.audit == (split_of(0, draw.prompt.task, draw.prompt.id) == "audit") for draw in drawn)
    assert 0.15 < sum(draw.audit for draw in drawn) / len(drawn) < 0.35


def test_half_of_the_plain_draws_have_the_models_own_guidance() -> None:
    """A model's default order and plausibility are measured, so that its pooled gate serves its default requests."""
    plain = mini().spec
    readable = GenerationConfig(policy={"guidance_scale": 1.0, "order": "conditional", "plausibility": 0.1})
    drawn = list(draws(dataclasses.replace(plain, generation=readable), PooledSettings()))
    own_guidance = [draw for draw in drawn if draw.order == "conditional"]
    assert 0.25 < len(own_guidance) / len(drawn) < 0.5
    assert all(draw.plausibility == 0.1 for draw in own_guidance)
    assert {draw.groups["order"] for draw in drawn} == {
        *("confidence", "guidance_boost", "conditional, plausibility 0.1")
    }
    regime = regime_of(own_guidance[0].job(tiny_model(), 0), "hash")
    assert (regime.order, regime.plausibility) == ("conditional", 0.1)
    assert names_of(regime)["order"] == "conditional, plausibility 0.1"
    others = [(draw.gen_length, draw.temperature, draw.guidance_scale) for draw in drawn]
    assert others == [
        (draw.gen_length, draw.temperature, draw.guidance_scale) for draw in draws(plain, PooledSettings())
    ]


def test_the_first_draws_do_not_depend_on_how_many_follow() -> None:
    few, many = (list(draws(mini().spec, dataclasses.replace(PLAN, pairs=pairs))) for pairs in (40, 80))
    assert many[:40] == few


def test_a_pair_is_what_the_server_would_write(tmp_path: Path) -> None:
    """The gate, live and with the same noise, gives the text and the rows that were read off."""
    model = tiny_model()
    pairs = own.measure(model, PLAN, tmp_path / "runs.jsonl")
    engine, live = Engine(model), []
    for pair in pairs[:12]:
        for gate in ((0.9, 0.0), (0.9, 0.5), (0.35, 0.3)):
            job = dataclasses.replace(pair.draw.job(model, PLAN.seed), gate=DrainedGate(*gate))
            live.append((pair, gate, engine.submit(job)))
    while engine.step():
        pass
    handed = 0
    for pair, gate, handle in live:
        outcome = handle.result()
        text = model.codec.decode(list(outcome.content))
        assert pair.handed[gate][1:] == (outcome.ledger.total, text)
        handed += outcome.handoff_step is not None
    assert handed > 5


def test_runs_are_kept_and_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = own.measure(tiny_model(), PLAN, path)
    whole = path.read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[:20]) + lines[20][:5], encoding="utf-8")  # stopped in the middle of a line
    again = own.measure(tiny_model(), PLAN, path)
    assert [pair.handed for pair in again] == [pair.handed for pair in first]
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(lines)
    with pytest.raises(ValueError, match="other settings"):
        own.measure(tiny_model(), dataclasses.replace(PLAN, seed=1), path)


@functools.cache
def _drawn(family: str) -> list[Draw]:
    """The draws of a family."""
    return [draw for draw in draws(mini().spec, PooledSettings()) if draw.family == family]


def _pairs(lost: dict[own.Gate, int], *, family: str = "commongen-k3") -> list[own.Pair]:
    """400 pairs; `lost`: how many of each hundred a gate of the grid loses. Gates with a later start take more rows."""
    drawn, pairs = _drawn(family), []
    for index in range(400):
        draw = dataclasses.replace(
            drawn[index % len(drawn)], index=index, prompt=dataclasses.replace(drawn[0].prompt, id=f"p{index}"),
            audit=index % 4 == 0,
        )  # fmt: skip
        handed = {gate: (index % 100 >= lost.get(gate, 0), round(100 - 50 * gate[0] + 10 * gate[1]), "a text")
                  for gate in own.GRID}  # fmt: skip
        pairs.append(own.Pair(draw, (True, 100, "a text"), handed, 0.1))
    return pairs


ALL_LOSE = dict.fromkeys(own.GRID, 30)


def test_the_gate_that_saves_most_within_the_margin_is_chosen() -> None:
    """Under all of these every text saves enough, so that the rows decide; the cheapest ones lose too much."""
    lost = {(1.0, start): 30 for start in own.EARLIEST} | {(0.9, 0.0): 30, (0.9, 0.3): 6, (0.9, 0.5): 2}
    chosen = own.choose(_pairs(lost), mini(), PooledSettings(margin=0.05), None)
    assert (chosen.threshold, chosen.earliest) == (0.9, 0.5)
    assert (chosen.pairs, chosen.loss, chosen.rows_of_full_cfg) == (100, 0.04, 0.6)
    assert chosen.withheld == {}
    stricter = own.choose(_pairs(lost), mini(), PooledSettings(margin=0.015), None)
    assert (stricter.threshold, stricter.earliest, stricter.loss) == (0.7, 0.0, 0.0)


def test_few_pairs_without_a_loss_prove_nothing() -> None:
    """Thirty prompts that agree leave room for a loss of a tenth; three hundred do not."""
    many = _pairs({})
    few = own.choose(many[:40], mini(), PooledSettings(margin=0.05), None)
    assert (few.threshold, few.loss) == (None, None)
    assert own.choose(many, mini(), PooledSettings(margin=0.05), None).threshold == 1.0


def test_a_harmed_family_keeps_full_cfg_and_is_named() -> None:
    harmed, fine = _pairs(ALL_LOSE), _pairs({}, family="ccg-multi")
    chosen = own.choose([*harmed, *fine], mini(), PooledSettings(), None)
    assert set(chosen.withheld) == {"commongen-k3"}
    assert chosen.withheld["commongen-k3"]["loss"] == pytest.approx(0.3, abs=0.02)
    assert chosen.loss == 0.0  # intention to treat: the withheld family keeps its full CFG
    assert "commongen-k3" in pooled_table(dataclasses.replace(chosen, evidence=_with_perplexity(chosen.evidence)))


def test_no_gate_is_chosen_where_all_lose() -> None:
    """Prompts of no family cannot be withheld."""
    nameless = [dataclasses.replace(pair, draw=_nameless(pair.draw)) for pair in _pairs(ALL_LOSE)]
    chosen = own.choose(nameless, mini(), PooledSettings(), None)
    assert (chosen.threshold, chosen.loss, chosen.measured) == (None, None, None)
    assert "full CFG" in pooled_table(dataclasses.replace(chosen, evidence=_with_perplexity(chosen.evidence)))


def test_the_shipped_measurements_are_shown() -> None:
    shown = pooled_tables(shipped_pooled())
    assert f"({mini().spec.hash})" in shown
    assert "(chosen)" in shown


def _nameless(draw: Draw) -> Draw:
    constraint = {"type": "contains", "phrases": ["dog"]}
    return dataclasses.replace(draw, prompt=dataclasses.replace(draw.prompt, constraint=constraint))


def _with_perplexity(evidence: object) -> dict[str, object]:
    content = json.loads(json.dumps(evidence))
    for point in content["curve"]:
        point |= {"perplexity": 50.0, "full_cfg_perplexity": 60.0}
    return dict(content)


def test_run_writes_beside_other_models(tmp_path: Path) -> None:
    out = tmp_path / "pooled.json"
    plan = dataclasses.replace(PLAN, margin=0.9)
    first = own.run(plan, model="tiny", out=out, load=lambda _: tiny_model())
    assert [one.model_hash for one in read_pooled(out)] == [tiny_model().spec.hash]
    other = dataclasses.replace(first, model_hash="another")
    own.write_pooled([other], out)
    own.run(plan, model="tiny", out=out, runs=tmp_path / "runs.jsonl", load=lambda _: tiny_model())
    assert {one.model_hash for one in read_pooled(out)} == {"another", tiny_model().spec.hash}
    regime = regime_of(next(iter(draws(tiny_model().spec, plan))).job(tiny_model(), 0), "x")
    assert first.outside(regime) == []
    out.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="pooled thresholds"):
        own.run(plan, model="tiny", out=out, load=lambda _: tiny_model())


@pytest.mark.parametrize(("field", "value"), [("pairs", 39), ("margin", 0.0), ("margin", 1.0)])
def test_settings_that_measure_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{field}|pairs"):
        dataclasses.replace(PooledSettings(), **{field: value})


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        list(draws(mini().spec, dataclasses.replace(PLAN, tasks=("nonsense",))))
