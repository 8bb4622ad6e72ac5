"""A tiny random `mini` model: every code path of the real one in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decoding.gates.builtin import FractionGate, NeverGate
from decoding.gates.protocol import Gate
from decoding.models.bert_mini.network import BertMini, BertMiniConfig, MiniModel
from decoding.models.bert_mini.vocabulary import EOT, MASK, SPECIAL, build_tokenizer, token_id
from decoding.models.protocol import ModelSpec
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job, Sampling
from decoding.sampling.noise import NoiseKey

WORDS = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), ".", ","]


def tiny_model(seed: int = 0, scale: float = 0.4) -> MiniModel:
    """Vocabulary of 70, two layers of width 32; `scale` sets how peaked its predictions are."""
    tokenizer = build_tokenizer(WORDS)
    config = BertMiniConfig(vocab_size=len(WORDS), hidden_size=32, num_layers=2, num_heads=4, intermediate_size=64)
    generator = torch.Generator().manual_seed(seed)
    network = BertMini(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm.weight" not in name:
                spread = scale if parameter.ndim > 1 else 0.1
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    spec = ModelSpec(
        name="tiny",
        hash=f"tiny{seed}",
        architecture="bert_mini",
        vocab_size=len(WORDS),
        mask_id=token_id(tokenizer, MASK),
        end_ids=(token_id(tokenizer, EOT),),
        suppressed_ids=tuple(token_id(tokenizer, token) for token in SPECIAL if token != EOT),
        max_prompt=448,
        max_canvas=64,
        default_canvas=16,
        reuses_key_values=True,
        gives_attention=True,
    )
    return MiniModel(network, tokenizer, spec, torch.device("cpu"))


class EndsEarly(MiniModel):
    """The tiny model with end-of-text made likely."""

    def project(self, features: Tensor) -> Tensor:
        logits = super().project(features)
        logits[:, self.spec.end_ids[0]] += 9.0
        return logits


class Steady(MiniModel):
    """The tiny model made sure of itself, and nearly blind to what has been committed."""

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        canvas = torch.arange(ids.shape[1])[None] >= prompt_lengths[:, None]
        blind = torch.where(canvas, self.spec.mask_id, ids)
        seen, unseen = (
            super(Steady, self).encode(x, prompt_lengths, lengths, always_mask=always_mask) for x in (ids, blind)
        )
        return 0.05 * seen + 0.95 * unseen

    def project(self, features: Tensor) -> Tensor:
        return 4.0 * super().project(features)


def steady_model() -> Steady:
    """`tiny_model` whose predictions stand still."""
    steady = Steady.__new__(Steady)
    steady.__dict__.update(tiny_model().__dict__)
    return steady


def ends_early_model() -> EndsEarly:
    """`tiny_model` whose texts end soon."""
    early = EndsEarly.__new__(EndsEarly)
    early.__dict__.update(tiny_model().__dict__)
    return early


def job(
    model: MiniModel,
    *,
    preset: str = "full_cfg",
    seed: int = 0,
    length: int = 12,
    steps: int | None = None,
    prompt: str = "a b c",
    gate: Gate | None = None,
    fraction: float | None = None,
    sampling: Sampling | None = None,
    policy: dict[str, Any] | None = None,
    **fields: Any,
) -> Job:
    """A job on `model`; `fraction` hands off there."""
    given = dict(policy or {})
    if fraction is not None:
        from decoding.policy.gate import GateSettings

        given.setdefault("gate", GateSettings("fraction", fraction=fraction))
        gate = FractionGate(fraction)
    return Job(
        prompt_ids=tuple(model.codec.encode_prompt(prompt)),
        gen_length=length,
        steps=length if steps is None else steps,
        policy=resolve_policy(preset, given, gen_length=length),
        noise=fields.pop("noise", NoiseKey(seed)),
        gate=gate or NeverGate(),
        sampling=sampling or Sampling(),
        **fields,
    )
