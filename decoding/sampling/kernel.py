"""One denoising step as pure functions on tensors: guide the logits, forbid tokens, sample, score, choose what is kept.

Shapes: M positions (any mix of requests, each masked and in its request's active block), V vocabulary entries. Every
function treats each position alone, so results do not depend on what else is in the batch. Works in the dtype given
(float32 in the service, float64 in the exact tests).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from decoding.sampling.mending import STANDS


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a step knows of each masked position [M]; probabilities are untempered.

    `guided` is the distribution that is sampled from (after guidance), `conditional` the model's without guidance: the
    same at positions of a base step, where the last three fields are zero.
    """

    token: Tensor
    """Sampled token id."""
    probability: Tensor
    """Guided probability of the sampled token."""
    margin: Tensor
    """Largest minus second largest guided probability."""
    entropy: Tensor
    """Entropy of the guided distribution, nats."""
    argmax: Tensor
    """Most probable token id."""
    conditional: Tensor
    """Conditional probability of the sampled token."""
    boost: Tensor
    """Guided minus conditional probability of the sampled token."""
    kl: Tensor
    """KL(guided || conditional), nats."""
    total_variation: Tensor
    """Total variation distance between guided and conditional, in [0, 1]."""
    leader_ids: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    """[M, N]: the N most probable token ids, best first, where a step asks for them (else N = 0)."""
    leader_probability: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """[M, N]: their guided probabilities."""

    def slice(self, start: int, stop: int) -> Candidates:
        """Positions start..stop-1."""
        return Candidates(*(getattr(self, f.name)[start:stop] for f in fields(self)))

    @staticmethod
    def concatenate(parts: list[Candidates]) -> Candidates:
        """Join along the position axis."""
        if len(parts) == 1:
            return parts[0]
        return Candidates(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Candidates)))

    def to_cpu(self) -> Candidates:
        """The same values in host memory."""
        return Candidates(*(getattr(self, f.name).cpu() for f in fields(self)))


@dataclass(frozen=True, slots=True)
class PositionSettings:
    """How each position [M] is sampled."""

    scale: Tensor
    """w of the guided positions."""
    uniforms: Tensor
    """In [0, 1), one a position."""
    temperature: Tensor
    """0: the argmax."""
    top_p: Tensor
    blocked: Tensor
    """Whether the position may not take the blocked ids (bool)."""
    plausibility: Tensor
    """The `share` of `plausible` where the position is guided; 0: every token is plausible."""
    standing: Tensor
    """Token id that stays if it is likely enough (`mending`), negative where none does (int64)."""

    def slice(self, part: slice) -> PositionSettings:
        """The settings of a run of positions."""
        return PositionSettings(*(getattr(self, item.name)[part] for item in fields(self)))

    def padded(self, missing: int) -> PositionSettings:
        """With `missing` positions more, whose candidates are thrown away."""

        def pad(values: Tensor, value: float) -> Tensor:
            return torch.cat([values, values.new_full((missing,), value)])

        return PositionSettings(
            scale=pad(self.scale, 0),
            uniforms=pad(self.uniforms, 0),
            temperature=pad(self.temperature, 1),
            top_p=pad(self.top_p, 1),
            blocked=pad(self.blocked, False),
            plausibility=pad(self.plausibility, 0),
            standing=pad(self.standing, -1),
        )


def tilt(conditional: Tensor, unconditional: Tensor, scale: Tensor) -> Tensor:
    """Guided logits c + w(c - u) [M, V] for scale w [M] (paper Section 3.2; LLaDA's convention, w = 0 is the base
    decoder).

    Call it before any entry is suppressed: the difference of two suppressed entries means nothing.
    """
    return torch.lerp(unconditional, conditional, (1.0 + scale.to(conditional.dtype))[:, None])


def suppress(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Set columns `token_ids` to the lowest finite number, in place; MASK is always among them.

    Their probability is exactly 0, as with -inf, but products with it stay finite in the statistics.
    """
    return logits.index_fill_(1, token_ids, torch.finfo(logits.dtype).min)


def inverse_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Token ids [M] where the cumulative distribution of `probabilities` [M, V] first exceeds the uniform in [0, 1).

    A token of zero probability is never returned.
    """
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    target = torch.minimum(uniforms[:, None].to(total.dtype) * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return tokens.clamp_(max=probabilities.shape[-1] - 1)  # NaN rows point past the end


def plausible(guided: Tensor, conditional: Tensor, share: Tensor) -> Tensor:
    """Suppress in `guided` [M, V], in place, what the model alone finds implausible.

    A token stays where its conditional probability is at least `share` [M] of the best one's: contrastive decoding's
    limit (arXiv 2210.15097). The conditionally best token always stays. Rows of share 0 are left as they are.
    """
    least = conditional.amax(-1) + share.to(conditional.dtype).log()
    return guided.masked_fill_(conditional < least[:, None], torch.finfo(guided.dtype).min)


def nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Zero all but the smallest set of most probable tokens whose mass reaches top_p [M]; ties by token id.

    The most probable token always stays. Rows with top_p >= 1 are left as they are. The result is not renormalised.
    """
    ordered, index = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    dropped = before >= top_p[:, None] * probabilities.sum(-1, keepdim=True)
    dropped[:, 0] = False
    dropped &= (top_p < 1.0)[:, None]
    return probabilities.masked_fill(torch.zeros_like(dropped).scatter_(-1, index, dropped), 0.0)


def sample(logits: Tensor, probabilities: Tensor, settings: PositionSettings, argmax: Tensor) -> Tensor:
    """Token ids [M]: argmax where temperature is 0, else inverse CDF of softmax(logits / temperature) within the
    nucleus.

    `probabilities` is softmax(logits) and is used as it is at positions of temperature 1, whatever the others have.
    """
    sampled = settings.temperature > 0
    if not bool(sampled.any()):
        return argmax
    temperature, top_p = settings.temperature.to(logits.dtype), settings.top_p.to(logits.dtype)
    tempered, plain = probabilities, (temperature == 1.0) | ~sampled
    if not bool(plain.all()):
        tempered = torch.where(
            plain[:, None], probabilities, torch.softmax(logits / temperature.clamp(min=1e-6)[:, None], -1)
        )
    if bool((top_p < 1.0).any()):
        tempered = nucleus(tempered, top_p)
    drawn = inverse_cdf(tempered, settings.uniforms)
    # A parallel cumulative sum may step where a probability is 0; such a draw is worth one ulp and becomes the argmax.
    possible = tempered.gather(-1, drawn[:, None]).squeeze(-1) > 0
    return torch.where(sampled & possible, drawn, argmax)


def keep_standing(drawn: Tensor, standing: Tensor, probabilities: Tensor, best: Tensor) -> Tensor:
    """Token ids [M]: the `standing` one where `probabilities` [M, V] give it a share of the `best`, else the drawn one.

    Negative ids stand for none.
    """
    likely = probabilities.gather(-1, standing.clamp(min=0)[:, None]).squeeze(-1) >= STANDS * best
    return torch.where((standing >= 0) & likely, standing, drawn)


def candidates(
    conditional: Tensor,
    unconditional: Tensor | None,
    settings: PositionSettings,
    *,
    suppressed: Tensor,
    blocked_ids: Tensor | None = None,
    leaders: int = 0,
) -> Candidates:
    """Candidates of M positions from raw logits [M, V].

    `unconditional` is None for base positions. `suppressed` holds token ids that no position may take, `blocked_ids`
    those that `settings.blocked` positions may not take either (end-of-text suppression). `leaders` is how many of the
    most probable tokens to tell of each position. Non-finite logits give non-finite statistics, which the caller must
    treat as a failure of the position's request.
    """
    guided = conditional.clone() if unconditional is None else tilt(conditional, unconditional, settings.scale)
    plain = conditional.clone() if unconditional is not None else None
    for logits in (guided, plain):
        if logits is not None:
            suppress(logits, suppressed)
            if blocked_ids is not None and bool(settings.blocked.any()):
                logits[settings.blocked.nonzero(), blocked_ids] = torch.finfo(logits.dtype).min
    if plain is not None and bool((settings.plausibility > 0).any()):
        plausible(guided, plain, settings.plausibility)
    log_z = guided.logsumexp(-1)
    probabilities = (guided - log_z[:, None]).exp_()
    top, top_index = probabilities.topk(2, -1)
    argmax = top_index[:, 0]
    token = sample(guided, probabilities, settings, argmax)
    if bool((settings.standing >= 0).any()):
        token = keep_standing(token, settings.standing, probabilities, top[:, 0])
    probability = probabilities.gather(-1, token[:, None]).squeeze(-1)
    expected = torch.linalg.vecdot(probabilities, guided)
    entropy = (log_z - expected).clamp_(min=0.0)
    conditional_probability = probability
    boost = kl = total_variation = torch.zeros_like(probability)
    if plain is not None:
        plain_log_z = plain.logsumexp(-1)
        kl = (expected - log_z - torch.linalg.vecdot(probabilities, plain) + plain_log_z).clamp_(min=0.0)
        plain_probabilities = plain.sub_(plain_log_z[:, None]).exp_()
        conditional_probability = plain_probabilities.gather(-1, token[:, None]).squeeze(-1)
        boost = probability - conditional_probability
        total_variation = 0.5 * plain_probabilities.sub_(probabilities).abs_().sum(-1)
    margin = top[:, 0] - top[:, 1]
    # Apart from `top`: how equal probabilities are ordered may depend on how many are asked for.
    best = probabilities.topk(min(leaders, probabilities.shape[-1]), -1)
    return Candidates(
        *(token, probability, margin, entropy, argmax, conditional_probability, boost, kl, total_variation),
        leader_ids=best.indices,
        leader_probability=best.values,
    )
