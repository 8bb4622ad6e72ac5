"""The commit order study over families: pooled, verdicts corrected for their number, factors, switch curves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate_models.gates.learned.audit_report import AuditPoint, AuditReport, Gap
from gate_models.offline.order_study.factors import HOME, factor_table, factors
from gate_models.offline.order_study.learned_gates import audit_matches
from gate_models.offline.order_study.matches import Match, family_table, family_verdicts, halves, holm, matches, note
from gate_models.offline.order_study.plots import plot_frontiers, plot_switch
from gate_models.offline.order_study.points import Group, Point, StudySetting, points, read
from gate_models.offline.order_study.pooled import complete, pool, pooled_table, stratified
from gate_models.offline.order_study.report import OrderStudy
from gate_models.offline.order_study.switch_curve import curves_of, moves, switch_table
from gate_models.offline.scorers.fluency import Fluency, load_judge
from tests.gate_models.order_study.samples import result, samples

FIRST = "drained:0.5:guidance_boost:b0.8"
COMMON = {"model": "tiny", "model_hash": "hash", "precision": "float32", "seeds": [0], "judge": "n-gram"}
OWN16 = StudySetting((16,))


def measured(texts: dict[str, list[dict[str, Any]]]) -> list[Point]:
    return points(texts, Fluency(load_judge()))


def family(prompts: int, first: float, plain: float = 0.5) -> list[Point]:
    """Full CFG .9, a confidence-order handoff, and guidance first at the same rows."""
    return measured(
        {
            "base": samples([0.1] * prompts, 16),
            "handoff:0.3": samples([plain] * prompts, 21),
            "full_cfg": samples([0.9] * prompts, 32),
            FIRST: samples([first] * prompts, 21),
        }
    )


def test_each_family_weighs_alike() -> None:
    """90 prompts at 0.8 and 10 at 0.2 pool to one half, with the interval of two means."""
    groups = {("a", OWN16): family(90, 0.8), ("b", OWN16): family(10, 0.2)}
    policies = ["base", "handoff:0.3", "full_cfg", FIRST]
    pooled = {one.policy: one for one in pool(list(complete(groups, policies).values()), policies)}
    first = pooled[FIRST]
    assert first.success.value == pytest.approx(0.5)
    assert first.loss.value == pytest.approx(0.4)
    assert (first.families, first.prompts, first.share) == (2, 100, 21 / 32)
    assert (first.against, pooled["base"].against) == ("handoff:0.3", None)
    assert first.difference is not None
    assert first.difference.value == pytest.approx(0.0)
    assert pooled["full_cfg"].perplexity == pytest.approx(1.0)
    assert f"| {FIRST} | 0.500 |" in pooled_table(list(pooled.values()))


def test_the_interval_resamples_prompts_within_families() -> None:
    """Two families of certain outcome have no spread, however far apart; sampling prompts across them would have."""
    sure = stratified([np.ones(30), np.zeros(30)])
    assert (sure.value, sure.low, sure.high) == (0.5, 0.5, 0.5)
    rng = np.random.default_rng(1)
    values = [(rng.random(50) < 0.5).astype(float) for _ in range(4)]
    wide = stratified(values)
    expected = 2 * 1.96 * float(np.sqrt(np.mean([v.var() / v.size for v in values]) / 4))
    assert wide.high - wide.low == pytest.approx(expected, rel=0.15)


def test_families_that_lack_a_policy_are_left_out_and_named() -> None:
    rest = [point for point in family(20, 0.8) if point.policy != "base"]
    measured_groups = {("a", OWN16): family(20, 0.8), ("b", OWN16): family(20, 0.8), ("c", OWN16): rest}
    study = OrderStudy(measured_groups, COMMON, (), pooled=("base", "full_cfg", FIRST, "constant"))
    groups, pooled = study.families()
    assert [task for task, _ in groups] == ["a", "b"]
    assert {one.policy for one in pooled} == {"base", "full_cfg", FIRST}
    assert "Left out, for they lack some policy: c." in study.markdown()


def test_a_policy_that_fell_back_to_full_cfg_is_no_guidance_first() -> None:
    """A calibrated gate without a setting gives full CFG's texts at its cost: no win, and the tables say why."""
    full = samples([0.9] * 30, 32, "a cat sleeps")
    texts = {"base": samples([0.1] * 30, 16), "full_cfg": full, "calibrated:guidance_boost:b0.8": list(full)}
    texts[FIRST] = samples([0.5] * 30, 20)
    groups = {("a", OWN16): measured(texts)}
    fallen = [point.policy for point in groups["a", OWN16] if point.falls_back]
    assert fallen == ["calibrated:guidance_boost:b0.8"]
    assert [match.point.policy for match in matches(groups["a", OWN16])] == [FIRST]
    shown = OrderStudy(groups, COMMON, (), pooled=tuple(texts)).markdown()
    assert "calibrated:guidance_boost:b0.8 (falls back)" in shown
    assert "calibrated:guidance_boost:b0.8 (1 fall back)" in shown


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.01, 0.04, 0.03], [True, False, False]),
        ([0.01, 0.02, 0.03], [True, True, True]),
        ([0.02, 0.02, 0.9], [False, False, False]),
        ([0.5, 0.001], [False, True]),
        ([], []),
    ],
)
def test_holm(p_values: list[float], rejected: list[bool]) -> None:
    assert holm(p_values) == rejected


def one_text(rates: list[float], rows: int) -> list[dict[str, Any]]:
    """The first of ten texts a prompt: satisfied where the rate is 1."""
    return samples(rates, rows)[::10]


def test_the_sign_test_is_mcnemars() -> None:
    """Nine prompts for guidance first, one against it, ten that do not differ: 2 (1 + 10) / 2^10."""
    plain, first = [0.0] * 9 + [1.0] * 11, [1.0] * 9 + [0.0] + [1.0] * 10
    own, other = measured({FIRST: one_text(first, 20), "base": one_text(plain, 16)})[::-1]
    (match,) = matches([own, other])
    assert match.p_value == pytest.approx(2 * 11 / 2**10)
    assert Match(own, own, match.difference).p_value == 1.0


def test_wins_by_chance_do_not_survive_their_number() -> None:
    """Forty families without any difference: some comparisons exclude 0, none after Holm; a true gap stays."""
    rng = np.random.default_rng(0)
    groups: dict[Group, list[Point]] = {}
    for number in range(40):
        rates = [(rng.random(40) < 0.5).astype(float).tolist() for _ in range(2)]
        groups[f"null{number}", OWN16] = measured({FIRST: one_text(rates[0], 20), "base": one_text(rates[1], 16)})
    sure = measured({FIRST: one_text([1.0] * 40, 20), "base": one_text([0.0] * 40, 16)})
    verdicts = family_verdicts(groups | {("sure", OWN16): sure})
    alone = sum(one.counts["even"] == 0 for one in verdicts[:-1])
    assert 0 < alone < 12
    assert sum(one.corrected["even"] == 0 for one in verdicts[:-1]) == 0
    assert verdicts[-1].corrected == {"wins": 1, "even": 0, "loses": 0}
    said = note(groups | {("sure", OWN16): sure})
    assert said.startswith("41 comparisons in 41 families.")
    assert "1 win and 0 lose. The policies" in said


def test_halves_take_off_what_choosing_adds() -> None:
    """Eight equal policies: the best of them looks better on the prompts that chose it, and not on the others."""
    rng = np.random.default_rng(5)
    names = [f"drained:{theta}:guidance_boost" for theta in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)]
    texts = {name: one_text((rng.random(60) < 0.5).astype(float).tolist(), 20) for name in names}
    points = measured(texts | {"base": one_text([1.0, 0.0] * 30, 16)})
    (verdict,) = family_verdicts({("a", OWN16): points})
    assert verdict.best.difference.value > 0.05
    assert abs(verdict.halves) < verdict.best.difference.value - 0.03
    assert halves(points) == verdict.halves
    assert "| a | 60 | drained:" in family_table({("a", OWN16): points})


def test_what_costs_less_than_every_rival_is_counted_apart() -> None:
    cheap = {FIRST: samples([0.9] * 20, 9), "base": samples([0.1] * 20, 16), f"{FIRST}:k2": samples([0.9] * 20, 17)}
    assert "1 guidance-first points cost less than every rival" in note({("a", OWN16): measured(cheap)})


def test_a_swept_weight_becomes_part_of_the_group(tmp_path: Path) -> None:
    """Base decoding has no weight: it belongs to each that was swept."""
    texts = {
        "base": samples([0.1] * 5, 16),
        "full_cfg:w1": samples([0.5] * 5, 32),
        "full_cfg:w4": samples([0.9] * 5, 32),
    }
    swept = result(tmp_path / "weights.json", "commongen-k3", texts, weights=[1.0, 4.0])
    plain = result(tmp_path / "main.json", "commongen-k3", {"base": texts["base"]})
    groups, _ = read([swept, plain])
    assert {str(setting): sorted(own) for (_, setting), own in groups.items()} == {
        "T = 16, temperature 1, w = 1": ["base", "full_cfg"],
        "T = 16, temperature 1, w = 4": ["base", "full_cfg"],
        "T = 16, temperature 1": ["base"],
    }


def test_factors_are_read_on_the_prompts_that_all_settings_have(tmp_path: Path) -> None:
    few, many = [0.5] * 4, [0.5] * 4 + [1.0] * 6
    policies = ("base", "full_cfg")

    def write(name: str, task: str, rates: list[float], full: int = 32, **settings: Any) -> Path:
        named = {policy: samples(rates, 16, full=full) for policy in policies}
        if settings.get("weights"):
            named["full_cfg:w4"] = named.pop("full_cfg")
        return result(tmp_path / f"{name}-{task}.json", task, named, **settings)

    main = [write("main", task, many) for task in ("commongen-k3", "commongen-k4")]
    moved = [
        write("weights", "commongen-k3", few, weights=[4.0]),
        write("cool", "commongen-k3", few, temperature=0.6),
        write("canvas32", "commongen-k4", few, full=64, canvas=32),
        write("canvas16", "commongen-k3", few, full=32, canvas=16),
    ]
    rows = factors(read(main)[0], read(moved)[0], Fluency(load_judge()))
    assert {one.name: one.families for one in rows} == {
        HOME: ("commongen-k3", "commongen-k4"),
        "T = 16": ("commongen-k3", "commongen-k4"),
        "T = 32": ("commongen-k4",),
        "w = 4": ("commongen-k3",),
        "temperature 0.6": ("commongen-k3",),
    }
    assert {one.policies["base"].success.value for one in rows} == {0.5}  # never the six prompts of main alone
    table = factor_table(rows, (*policies, FIRST))
    assert "| T = 32 | 1, 4 | 0.50, 25%, 1.00, 0.00 | 0.50, 25%, 1.00, 0.00 | - |" in table


def switch(plain: list[float], first: list[float], ends: tuple[float, float], prompts: int = 40) -> list[Point]:
    """Success of runs that hand off at .15, .3 and .6 in both orders."""
    texts = {"base": samples([0.1] * prompts, 16), "full_cfg": samples([ends[0]] * prompts, 32)}
    texts["full_cfg:guidance_boost"] = samples([ends[1]] * prompts, 32)
    for fraction, confidence, boost in zip((0.15, 0.3, 0.6), plain, first, strict=True):
        texts[f"handoff:{fraction}"] = samples([confidence] * prompts, 20)
        texts[f"handoff:{fraction}:guidance_boost"] = samples([boost] * prompts, 20)
    return measured(texts)


def test_the_switch_curve_has_a_horizon_in_each_order() -> None:
    curves = curves_of(OWN16, switch([0.2, 0.3, 0.9], [0.5, 0.8, 0.8], (0.9, 0.8)))
    assert curves["confidence"].horizon == 10 / 16
    assert curves["guidance_boost"].horizon == 5 / 16
    assert curves["guidance_boost"].horizon_to(0.9) is None
    assert [point.value for point in curves["guidance_boost"].success] == pytest.approx([0.1, 0.5, 0.8, 0.8])
    assert curves_of(StudySetting((16, 24)), switch([0.2, 0.3, 0.9], [0.5, 0.8, 0.8], (0.9, 0.8))) == {}


def test_whether_the_horizon_moves_is_resampled(tmp_path: Path) -> None:
    """Certain curves move for sure; curves of prompts that are at odds do not."""
    curves = {("sure", OWN16): switch([0.2, 0.3, 0.9], [0.5, 0.8, 0.8], (0.9, 0.8))}
    rng = np.random.default_rng(3)
    names = [f"handoff:{f}{order}" for f in (0.15, 0.3, 0.6) for order in ("", ":guidance_boost")]
    vague = {name: one_text((rng.random(20) < 0.6).astype(float).tolist(), 20) for name in names}
    for name in ("base", "full_cfg", "full_cfg:guidance_boost"):
        vague[name] = one_text((rng.random(20) < 0.6).astype(float).tolist(), 32)
    sure, unsure = moves(curves | {("vague", OWN16): measured(vague)})
    assert (sure.earlier, sure.later, sure.verdict) == (1.0, 0.0, "earlier")
    assert unsure.verdict == "not shown"
    assert 0 < unsure.earlier + unsure.later <= 1
    assert "| sure | 40 | 0.10 | 0.90 | 0.62 | 0.80 | 0.31 | none | 100%, 0% | earlier |" in switch_table([sure])
    plot_switch([sure, unsure], tmp_path / "switch.png")
    plot_frontiers(dict.fromkeys([(f"f{i}", OWN16) for i in range(14)], family(10, 0.8)), tmp_path / "frontiers.png")
    for name in ("switch.png", "frontiers.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def audit(family: str, **success: float) -> AuditReport:
    """Full CFG .9 at 32 rows; each gate, `name_width`, at 20."""
    gap = Gap(0.0, -0.1, 0.1)

    def point(source: str, width: int, value: float, rows: float) -> AuditPoint:
        return AuditPoint(source, width, value, value - 0.03, value + 0.04, rows, 50.0, 0.1, 1.0, gap, None)

    own = [point(*name.rsplit("_", 1), value, 20.0) for name, value in success.items()]  # type: ignore[arg-type]
    gates = tuple(replace(one, tail_width=int(one.tail_width)) for one in own)
    return AuditReport(family, "v", "hash", 40, 2, 0, "n-gram", (point("full_cfg", 1, 0.9, 32.0), *gates))


def test_guidance_first_stands_beside_the_best_gate_that_costs_no_more() -> None:
    """Independent estimates: .8 +- 0 less .6 [.57, .64] is .2 [.16, .23]; a family without an audit is left out."""
    groups = {("a", OWN16): family(20, 0.8), ("b", OWN16): family(20, 0.8)}
    reports = {"a": audit("a", policy_1=0.6, oracle_4=0.5)}
    (one,) = audit_matches(groups, reports)
    assert (one.group[0], one.point.policy, one.gate.source) == ("a", FIRST, "policy")
    assert [one.difference.value, one.difference.low, one.difference.high] == pytest.approx([0.2, 0.16, 0.23])
    dear = {"a": replace(reports["a"], points=tuple(replace(p, forward_evaluations=30.0) for p in reports["a"].points))}
    assert audit_matches(groups, dear) == []
    shown = OrderStudy(groups, COMMON, (), ("base", "full_cfg", FIRST), audits=reports)
    assert "| a | drained:0.5:guidance_boost:b0.8 | 21.0 | 0.80 |" in shown.markdown()
    assert "| policy, K = 1 | 0.600 | 62% | 1.00 | 0.10 |" in shown.markdown()
    assert shown.to_json()["beside_gates"][0]["difference"] == [0.2, 0.16, 0.23]


def test_the_numbers_are_plain_json() -> None:
    groups = {("a", OWN16): family(20, 0.8), ("b", OWN16): family(20, 0.2)}
    texts = switch([0.2, 0.3, 0.9], [0.5, 0.8, 0.8], (0.9, 0.8))
    study = OrderStudy(groups, COMMON, ("how",), ("base", "full_cfg", FIRST), moves=moves({("a", OWN16): texts}))
    content = json.loads(json.dumps(study.to_json()))
    assert [one["task"] for one in content["verdicts"]] == ["a", "b"]
    assert content["verdicts"][0]["alone"] == {"wins": 1, "even": 0, "loses": 0}
    assert content["switch"][0]["verdict"] == "earlier"
    assert content["pooled"]["families"] == ["a", "b"]
