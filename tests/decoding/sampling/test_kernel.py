"""Contract 1: one step, position by position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from decoding.sampling.commit_order import CONFIDENCE_KINDS, ORDERS, commit_count, ranked
from decoding.sampling.kernel import PositionSettings, candidates, inverse_cdf, nucleus, tilt

M, V, MASK = 6, 11, 0


def logits(seed: int, rows: int = M) -> Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def step(conditional: Tensor, unconditional: Tensor | None, w: float = 2.0, **changes: object):
    rows = conditional.shape[0]
    ones = torch.ones(rows, dtype=torch.float64)
    arguments: dict[str, object] = {
        "scale": ones * w,
        "uniforms": torch.linspace(0.05, 0.95, rows, dtype=torch.float64),
        "temperature": ones,
        "top_p": ones,
        "blocked": torch.zeros(rows, dtype=torch.bool),
        "plausibility": torch.zeros(rows, dtype=torch.float64),
        "standing": torch.full((rows,), -1),
    }
    suppressed, blocked_ids = changes.pop("suppressed", torch.tensor([MASK])), changes.pop("blocked_ids", None)
    settings = PositionSettings(**(arguments | changes))  # type: ignore[arg-type]
    return candidates(conditional, unconditional, settings, suppressed=suppressed, blocked_ids=blocked_ids)


def test_tilt_is_c_plus_w_times_c_minus_u() -> None:
    c, u, w = logits(0), logits(1), torch.linspace(0, 5, M, dtype=torch.float64)
    assert torch.allclose(tilt(c, u, w), c + w[:, None] * (c - u), atol=1e-12)


def test_w_zero_is_the_base_decoder_to_the_bit() -> None:
    c, u = logits(0).float(), logits(1).float()
    guided, base = step(c, u, w=0.0), step(c, None)
    assert torch.equal(guided.token, base.token)
    assert torch.equal(guided.probability, base.probability)


def test_statistics_against_their_definitions() -> None:
    c, u, w = logits(0), logits(1), 1.5
    candidates = step(c, u, w)
    c, u = c.clone(), u.clone()
    g = c + w * (c - u)
    g[:, MASK] = c[:, MASK] = -np.inf
    p, q = torch.softmax(g, -1), torch.softmax(c, -1)
    rows = torch.arange(M)
    top = p.sort(-1, descending=True).values
    assert torch.allclose(candidates.probability, p[rows, candidates.token])
    assert torch.allclose(candidates.margin, top[:, 0] - top[:, 1])
    assert torch.equal(candidates.argmax, p.argmax(-1))
    assert torch.allclose(candidates.entropy, torch.special.entr(p).sum(-1))
    assert torch.allclose(candidates.boost, p[rows, candidates.token] - q[rows, candidates.token])
    assert torch.allclose(candidates.total_variation, (p - q).abs().sum(-1) / 2)
    assert torch.allclose(candidates.kl, torch.where(p > 0, p * (p / q).log(), 0.0).sum(-1))


def test_base_step_has_no_guidance_statistics() -> None:
    candidates = step(logits(0), None)
    for values in (candidates.boost, candidates.kl, candidates.total_variation):
        assert torch.count_nonzero(values) == 0


def test_mask_is_never_emitted_even_where_the_model_is_sure_of_it() -> None:
    c = logits(0)
    c[:, MASK] = 1e4
    for temperature in (0.0, 0.7, 1.0):
        candidates = step(c, logits(1), temperature=torch.full((M,), temperature, dtype=torch.float64))
        assert not (candidates.token == MASK).any()
        assert not (candidates.argmax == MASK).any()
        assert torch.isfinite(candidates.probability).all()


def test_guidance_is_combined_before_suppression() -> None:
    """(-inf) - (-inf) would be NaN: a suppressed id in both branches must leave everything finite."""
    candidates = step(logits(0), logits(1), suppressed=torch.tensor([MASK, 3, 4]))
    for name in ("probability", "entropy", "kl", "total_variation", "boost"):
        assert torch.isfinite(getattr(candidates, name)).all()


def test_barred_ids_apply_to_barred_positions_only() -> None:
    c = logits(0)
    c[:, 5] = 50.0
    blocked = torch.tensor([True, False] * (M // 2))
    candidates = step(c, None, blocked=blocked, blocked_ids=torch.tensor([5]))
    assert torch.equal(candidates.token == 5, ~blocked)


def test_temperature_zero_is_argmax_and_confidence_stays_untempered() -> None:
    c = logits(0)
    cold = step(c, None, temperature=torch.zeros(M, dtype=torch.float64))
    assert torch.equal(cold.token, cold.argmax)
    warm = step(c, None, temperature=torch.full((M,), 0.5, dtype=torch.float64))
    c[:, MASK] = -np.inf
    p = torch.softmax(c, -1)
    assert torch.allclose(warm.probability, p[torch.arange(M), warm.token])


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.7), (1.7, 0.9)])
def test_sampling_frequencies(temperature: float, top_p: float) -> None:
    """G-test at 1e-6 of 20,000 inverse-CDF draws against the tempered, nucleus-cut distribution."""
    count = 20_000
    c = logits(3, 1).expand(count, V).clone()
    uniforms = torch.from_numpy(np.random.default_rng(0).random(count))
    full = {"temperature": torch.full((count,), temperature), "top_p": torch.full((count,), top_p)}
    candidates = step(c, None, uniforms=uniforms, **full)
    row = c[0].clone()
    row[MASK] = -np.inf
    p = torch.softmax(row / temperature, -1)
    order = p.argsort(descending=True)
    kept = order[(p[order].cumsum(0) - p[order]) < top_p]
    expected = torch.zeros(V, dtype=torch.float64)
    expected[kept] = p[kept] / p[kept].sum()
    observed = torch.bincount(candidates.token, minlength=V)
    assert observed[expected == 0].sum() == 0
    support = expected > 0
    assert stats.power_divergence(observed[support], expected[support] * count, lambda_=0).pvalue > 1e-6


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 10_000))
def test_inverse_cdf_never_picks_a_token_of_probability_zero(uniform: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(1, 9, generator=generator) * (torch.rand(1, 9, generator=generator) < 0.5)
    p[0, 4] = 1e-12
    token = int(inverse_cdf(p, torch.tensor([uniform])))
    assert p[0, token] > 0


def test_nucleus_keeps_the_smallest_sufficient_set() -> None:
    p = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).double()
    assert torch.equal(nucleus(p, torch.tensor([0.69])) > 0, torch.tensor([[False, True, False, True]]))
    assert torch.equal(nucleus(p, torch.tensor([1e-9])) > 0, torch.tensor([[False, True, False, False]]))
    assert torch.equal(nucleus(p, torch.tensor([1.0])), p)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.permutations(range(M)))
def test_a_position_does_not_see_its_neighbours(seed: int, permutation: list[int]) -> None:
    """Permuting positions permutes the candidates, with mixed temperatures and top_p."""
    c, u = logits(seed).float(), logits(seed + 1).float()
    index = torch.tensor(permutation)
    temperature, top_p = torch.tensor([1.0, 0.0, 0.5, 1.0, 2.0, 1.0]), torch.tensor([1.0, 0.5, 0.9, 0.8, 1.0, 1.0])
    uniforms = torch.linspace(0.1, 0.9, M).double()
    plain = step(c, u, temperature=temperature, top_p=top_p, uniforms=uniforms)
    moved = step(c[index], u[index], temperature=temperature[index], top_p=top_p[index], uniforms=uniforms[index])
    assert torch.equal(plain.token[index], moved.token)
    assert torch.equal(plain.probability[index], moved.probability)


def test_nan_logits_give_non_finite_statistics_in_their_row_alone() -> None:
    c = logits(0)
    c[2, 4] = float("nan")
    candidates = step(c, logits(1))
    finite = torch.isfinite(candidates.entropy)
    assert finite.tolist() == [True, True, False, True, True, True]


def test_orders_rank_by_their_statistic_with_ties_by_position() -> None:
    candidates = step(logits(0), logits(1))
    positions = torch.tensor([5, 4, 3, 2, 1, 0])
    u = torch.zeros(M)
    for order, values in (
        (CONFIDENCE_KINDS["probability"], candidates.probability),
        (CONFIDENCE_KINDS["margin"], candidates.margin),
        (CONFIDENCE_KINDS["neg_entropy"], -candidates.entropy),
        (ORDERS["guidance_boost"], candidates.boost),
        (ORDERS["boost_confidence"], candidates.boost * candidates.probability),
    ):
        sequence = ranked(order.score(candidates, u), positions)
        assert torch.equal(values[sequence], values.sort(descending=True).values)
    tied = ranked(torch.tensor([0.5, 0.9, 0.5, 0.5, 0.9, 0.1]), positions)
    assert positions[tied].tolist() == [1, 4, 2, 3, 5, 0]


@pytest.mark.parametrize(
    ("quota", "threshold", "expected"),
    [
        (1, None, 1),
        (3, None, 3),
        (9, None, 5),
        (0, None, 0),
        (5, 0.7, 2),
        (5, 0.95, 1),
        (2, 0.0, 2),
        (5, 0.1, 4),
        (9, 0.0, 5),
    ],
)
def test_commit_count(quota: int, threshold: float | None, expected: int) -> None:
    confidence = torch.tensor([0.9, 0.8, 0.6, 0.3, 0.05])
    assert commit_count(quota, 5, confidence, threshold) == expected


def test_plausibility_keeps_what_the_model_alone_finds_likely_enough() -> None:
    c, u, share = logits(0), logits(1), torch.tensor([0.0, 0.05, 0.2, 0.5, 1.0, 0.3], dtype=torch.float64)
    free, limited = step(c, u), step(c, u, plausibility=share)
    alone = c.clone()
    alone[:, MASK] = -np.inf
    alone = alone.softmax(-1)
    guided = c + 2.0 * (c - u)
    guided[alone < share[:, None] * alone.amax(-1, keepdim=True)] = -np.inf
    guided[:, MASK] = -np.inf
    p, rows = guided.softmax(-1), torch.arange(M)
    assert torch.allclose(limited.probability, p[rows, limited.token])
    assert torch.allclose(limited.conditional, alone[rows, limited.token])
    assert torch.allclose(limited.boost, limited.probability - limited.conditional)
    assert torch.allclose(limited.total_variation, 0.5 * (p - alone).abs().sum(-1))
    assert torch.allclose(limited.kl, torch.where(p > 0, p * (p / alone).log(), 0.0).sum(-1))
    assert bool((limited.conditional >= share * alone.amax(-1) - 1e-12).all())
    assert torch.equal(limited.token[0], free.token[0])  # share 0: as without
    assert torch.equal(limited.probability[0], free.probability[0])
    assert int(limited.token[4]) == int(alone[4].argmax())  # share 1: the model's own best token


def test_plausibility_leaves_base_positions_alone() -> None:
    c = logits(0)
    plain, limited = step(c, None), step(c, None, plausibility=torch.full((M,), 0.9, dtype=torch.float64))
    assert torch.equal(plain.token, limited.token)
    assert torch.equal(plain.conditional, plain.probability)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 1.7])
def test_no_implausible_token_is_drawn(temperature: float) -> None:
    rows = 4000
    c, u = logits(2, 1).expand(rows, V).clone(), logits(3, 1).expand(rows, V).clone()
    uniforms = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    settings = {"temperature": torch.full((rows,), temperature, dtype=torch.float64), "uniforms": uniforms}
    free = step(c, u, w=4.0, **settings)
    limited = step(c, u, w=4.0, plausibility=torch.full((rows,), 0.25, dtype=torch.float64), **settings)
    assert float(limited.conditional.min()) >= 0.25 * float(c[0, 1:].softmax(-1).max()) - 1e-12
    if temperature > 0.5:
        assert float(free.conditional.min()) < 0.25 * float(c[0, 1:].softmax(-1).max())


def test_nan_logits_stay_visible_under_a_plausibility() -> None:
    c, u = logits(0), logits(1)
    c[2] = np.nan
    candidates = step(c, u, plausibility=torch.full((M,), 0.1, dtype=torch.float64))
    assert candidates.entropy.isfinite().tolist() == [True, True, False, True, True, True]


def test_conditional_order_ranks_by_the_models_own_probability() -> None:
    candidates = step(logits(0), logits(1))
    assert torch.equal(ORDERS["conditional"].score(candidates, torch.zeros(M)), candidates.conditional)
    assert not torch.equal(candidates.conditional, candidates.probability)
