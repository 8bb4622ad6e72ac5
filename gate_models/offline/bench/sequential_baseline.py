"""A plain sequential decoder: one request at a time, conditional and unconditional row in one batch of two.

What a straightforward script does (LLaDA's reference loop), on the same network, with logits at masked positions only.
The yardstick of `astargate bench`; it shares nothing with the engine but the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.models.protocol import DenoisingModel


@dataclass(frozen=True, slots=True)
class SequentialResult:
    """Canvas ids and what they cost."""

    tokens: list[int]
    rows: int


@torch.inference_mode()
def decode_sequentially(
    model: DenoisingModel,
    prompt_ids: list[int],
    gen_length: int,
    *,
    scale: float,
    handoff: int,
    tail_width: int,
    seed: int,
) -> SequentialResult:
    """Serial guided steps until step `handoff`, then `tail_width` positions a base step; temperature 1."""
    spec, device = model.spec, model.device
    generator = torch.Generator(device).manual_seed(seed)
    prompt = torch.tensor(prompt_ids, dtype=torch.long, device=device)
    hidden = torch.tensor(spec.unconditional_prompt(prompt_ids), dtype=torch.long, device=device)
    canvas = torch.full((gen_length,), spec.mask_id, device=device)
    suppressed = torch.tensor(spec.suppressed_ids, device=device)
    step = rows = 0
    while bool((masked := canvas == spec.mask_id).any()):
        guided = step < handoff
        prompts = [prompt, hidden] if guided else [prompt]
        ids = torch.stack([torch.cat([p, canvas]) for p in prompts])
        lengths = torch.full((len(prompts),), ids.shape[1], device=device)
        features = model.encode(ids, torch.full_like(lengths, len(prompt_ids)), lengths, always_mask=False)
        at = masked.nonzero().squeeze(-1)
        keep = torch.cat([len(prompt_ids) + at + index * ids.shape[1] for index in range(len(prompts))])
        logits = model.project(features[keep])
        rows += len(prompts)
        if guided:
            conditional, unconditional = logits.chunk(2)
            logits = conditional + scale * (conditional - unconditional)
        _commit(canvas, at, logits, 1 if guided else tail_width, suppressed, generator)
        step += 1
    return SequentialResult(canvas.tolist(), rows)


def _commit(
    canvas: Tensor, at: Tensor, logits: Tensor, width: int, suppressed: Tensor, generator: torch.Generator
) -> None:
    """Sample every masked position, commit the `width` most confident."""
    logits[:, suppressed] = float("-inf")
    probabilities = torch.softmax(logits, -1)
    tokens = torch.multinomial(probabilities, 1, generator=generator)
    confidence = probabilities.gather(-1, tokens).squeeze(-1)
    chosen = confidence.topk(min(width, at.numel())).indices
    canvas[at[chosen]] = tokens.squeeze(-1)[chosen]
