"""Commit orders: which masked positions of a request are committed first.

An order is a plain function that scores each candidate; the largest score goes first, and ties go to the smaller
position. `@commit_order` makes it one that a policy's `order` may name, `@confidence_kind` one that the order
'confidence' may stand for. Validation, the HTTP schema and the catalogue take the names from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:  # names of orders are read where no tensor is
    from torch import Tensor


class Candidates(Protocol):
    """What an order may read of the candidates of M positions; `kernel.Candidates` has it, [M] each."""

    @property
    def probability(self) -> Tensor: ...
    @property
    def margin(self) -> Tensor: ...
    @property
    def entropy(self) -> Tensor: ...
    @property
    def conditional(self) -> Tensor: ...
    @property
    def boost(self) -> Tensor: ...


ScoreFunction = Callable[[Candidates, "Tensor"], "Tensor"]
"""(candidates of M positions, order uniforms [M]) -> scores [M]."""
CONFIDENCE: Final = "confidence"
"""The order that ranks by the request's kind of confidence, guided or not."""


@dataclass(frozen=True, slots=True)
class Order:
    """A named score.

    `guided_only` orders need both branches: base steps commit by confidence. `needs_noise` ones need a second uniform a
    position.
    """

    name: str
    score: ScoreFunction
    guided_only: bool = False
    needs_noise: bool = False
    guidance_first: bool = False
    """Whether it commits first what guidance raises most: words that it began go on first, the canvas' ends go last."""


ORDERS: Final[dict[str, Order]] = {}
"""What a policy's `order` may name besides 'confidence'."""
CONFIDENCE_KINDS: Final[dict[str, Order]] = {}
"""What 'confidence' may mean."""


def commit_order(
    *, guided_only: bool = False, needs_noise: bool = False, guidance_first: bool = False
) -> Callable[[ScoreFunction], ScoreFunction]:
    """Register a score under its function's name as a commit order; the flags are those of `Order`."""

    def register(score: ScoreFunction) -> ScoreFunction:
        ORDERS[score.__name__] = Order(score.__name__, score, guided_only, needs_noise, guidance_first)
        return score

    return register


def confidence_kind(*, needs_noise: bool = False) -> Callable[[ScoreFunction], ScoreFunction]:
    """Register a score under its function's name as a kind of confidence."""

    def register(score: ScoreFunction) -> ScoreFunction:
        CONFIDENCE_KINDS[score.__name__] = Order(score.__name__, score, needs_noise=needs_noise)
        return score

    return register


@confidence_kind()
def probability(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """The token's probability."""
    return candidates.probability


@confidence_kind()
def margin(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """How far the likeliest token is ahead of the next."""
    return candidates.margin


@confidence_kind()
def neg_entropy(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """How little the distribution is spread."""
    return -candidates.entropy


@confidence_kind(needs_noise=True)
@commit_order(needs_noise=True)
def random(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """Noise, whatever the model says."""
    return uniforms


@commit_order(guided_only=True)
def conditional(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """The model's own probability of the token that guidance drew."""
    return candidates.conditional


@commit_order(guided_only=True, guidance_first=True)
def guidance_boost(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """What guidance adds to the token's probability."""
    return candidates.boost


@commit_order(guided_only=True, guidance_first=True)
def boost_confidence(candidates: Candidates, uniforms: Tensor) -> Tensor:
    """What guidance adds to the token's probability, times that probability."""
    return candidates.boost * candidates.probability


def order_names() -> tuple[str, ...]:
    """Every value of a policy's `order`."""
    return (CONFIDENCE, *ORDERS)


def guided_orders() -> tuple[str, ...]:
    """The orders that only guided steps can follow."""
    return tuple(name for name, order in ORDERS.items() if order.guided_only)


def guidance_first_orders() -> tuple[str, ...]:
    """The orders that commit first what guidance raises most."""
    return tuple(name for name, order in ORDERS.items() if order.guidance_first)


def base_order(name: str) -> str:
    """What base steps follow under the order `name`: the same, or confidence where it needs guidance."""
    return CONFIDENCE if name in guided_orders() else name


def needs_noise(name: str) -> bool:
    """Whether the order `name` ranks by noise of its own."""
    return name in ORDERS and ORDERS[name].needs_noise


def step_order(name: str, confidence: str, *, guided: bool) -> Order:
    """The order of one step of a policy whose order is `name` and of a request whose confidence is of that kind."""
    followed = name if guided else base_order(name)
    return CONFIDENCE_KINDS[confidence] if followed == CONFIDENCE else ORDERS[followed]


def ranked(scores: Tensor, positions: Tensor) -> Tensor:
    """Indices [M] from the first to the last to commit: by falling score, ties by rising position."""
    by_position = positions.argsort(stable=True)
    return by_position[scores[by_position].argsort(descending=True, stable=True)]


def reached_first(ranked_confidence: Tensor, threshold: float) -> Tensor:
    """Indices that bring candidates of at least `threshold` confidence to the front, each group in its rank order."""
    return (ranked_confidence < threshold).char().argsort(stable=True)


def commit_count(
    quota: int, available: int, ranked_confidence: Tensor, threshold: float | None, minimum: int = 1
) -> int:
    """How many of the ranked candidates to commit.

    Without a threshold the quota; with one (adaptive tail) every leading candidate whose confidence reaches it, from
    `minimum` (what the schedule needs to end in time) up to the quota. Never more than `available`.
    """
    limit = min(quota, available)
    if threshold is None or limit <= minimum:
        return limit
    reached = int((ranked_confidence[:limit] >= threshold).long().cumprod(0).sum())
    return max(minimum, reached)
