"""The networks against an independent reference and against transformers' causal models with a full mask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from decoding.models.dream import NAMES as DREAM_NAMES
from decoding.models.dream import dream_shape
from decoding.models.llada import NAMES as LLADA_NAMES
from decoding.models.llada import llada_shape
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.models.tools.make_random import Arch
from decoding.models.transformer.blocks import Transformer
from tests.decoding.models.reference import Reference, manifest

LLADA_8B = {
    "model_type": "llada", "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": 12288,
    "embedding_size": 126464, "vocab_size": 126464, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
}  # fmt: skip
DREAM_7B = {
    "model_type": "Dream", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
}  # fmt: skip


def sequence(model: DenoisingModel, text: str, canvas: int) -> tuple[list[int], int]:
    """Ids of a templated prompt and a canvas whose every third token is decided; the prompt's length."""
    prompt = model.codec.encode_prompt(text)
    decided = model.codec.encode(" dog ball beach red blue green story yes") * canvas
    return prompt + [model.spec.mask_id if i % 3 else decided[i] for i in range(canvas)], len(prompt)


def logits(
    model: DenoisingModel, rows: Sequence[tuple[list[int], int]], *, width: int = 0, always: bool = False
) -> list[Tensor]:
    """Logits [len, V] of each row in one batch, padded to `width` with an arbitrary token."""
    width = max([width, *(len(ids) for ids, _ in rows)])
    batch = torch.tensor([ids + [7] * (width - len(ids)) for ids, _ in rows])
    prompts = torch.tensor([prompt for _, prompt in rows])
    lengths = torch.tensor([len(ids) for ids, _ in rows])
    projected = model.project(model.encode(batch, prompts, lengths, always_mask=always)).unflatten(0, batch.shape)
    return [projected[row, : len(ids)] for row, (ids, _) in enumerate(rows)]


def test_equals_the_reference(model: DenoisingModel, reference: Reference) -> None:
    for text, canvas in (("Say yes.", 9), ("Write one sentence about the dog, please.", 24)):
        ids, prompt = sequence(model, text, canvas)
        (ours,) = logits(model, [(ids, prompt)])
        torch.testing.assert_close(ours, reference.logits(ids), rtol=0, atol=1e-5)


def transformers_logits(reference: Reference, ids: list[int]) -> Tensor:
    """transformers' Llama or Qwen2 with the checkpoint's weights and nothing masked, unshifted."""
    c = reference.config
    if reference.llada:
        own = {"model.transformer.wte": "model.embed_tokens", "model.transformer.ln_f": "model.norm"}
        own["model.transformer.ff_out"] = "lm_head"
        inner = {"attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm", "attn_out": "self_attn.o_proj"}
        inner |= {f"{p}_proj": f"self_attn.{p}_proj" for p in "qkv"}
        inner |= {"ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj"}
        for n in range(c["n_layers"]):
            own |= {f"model.transformer.blocks.{n}.{a}": f"model.layers.{n}.{b}" for a, b in inner.items()}
        weights = {own[name.removesuffix(".weight")] + ".weight": tensor for name, tensor in reference.weights.items()}
        network: LlamaForCausalLM | Qwen2ForCausalLM = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=c["vocab_size"],
                hidden_size=c["d_model"],
                intermediate_size=c["mlp_hidden_size"],
                num_hidden_layers=c["n_layers"],
                num_attention_heads=c["n_heads"],
                rms_norm_eps=c["rms_norm_eps"],
                rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]},
            )
        )
    else:
        keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        kept = {key: c[key] for key in (*keys, "num_key_value_heads", "rms_norm_eps")}
        rope = {"rope_type": "default", "rope_theta": c["rope_theta"]}
        weights, network = reference.weights, Qwen2ForCausalLM(Qwen2Config(**kept, rope_parameters=rope))
    network.load_state_dict(weights)
    with torch.inference_mode():
        everything = torch.zeros(1, 1, len(ids), len(ids))
        return network.eval()(torch.tensor([ids]), attention_mask=everything, use_cache=False).logits[0]


def test_equals_transformers_with_a_full_mask(model: DenoisingModel, reference: Reference) -> None:
    ids, prompt = sequence(model, "Write a story about the beach.", 17)
    theirs = transformers_logits(reference, ids)
    (ours,) = logits(model, [(ids, prompt)])
    if not reference.llada:
        ours, theirs = ours[1:], theirs[:-1]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    last = ours[0]  # and it is not causal: a change at the end moves the first prediction
    (moved,) = logits(model, [([*ids[:-1], 5], prompt)])
    assert (last - moved[0 if reference.llada else 1]).abs().max() > 1e-3


@pytest.mark.parametrize("always", [False, True])
def test_padding_and_neighbours_do_not_matter(model: DenoisingModel, always: bool) -> None:
    rows = [
        sequence(model, text, canvas) for text, canvas in (("Say yes.", 8), ("No comma.", 31), ("A dog at a ball", 16))
    ]
    together = logits(model, rows, width=max(len(ids) for ids, _ in rows) + 5, always=always)
    for row, batched in zip(rows, together, strict=True):
        (alone,) = logits(model, [row])
        torch.testing.assert_close(batched, alone, rtol=0, atol=1e-5)


def test_bfloat16_stays_close_and_gives_float32(folder: Path, model: DenoisingModel) -> None:
    half = load_model(str(folder), dtype="bfloat16")
    row = sequence(model, "Say yes.", 12)
    (exact,), (rounded,) = logits(model, [row]), logits(half, [row])
    assert rounded.dtype == torch.float32
    assert (exact - rounded).abs().mean() < 0.1 * exact.std()


def test_spread_over_devices(folder: Path, model: DenoisingModel) -> None:
    split = load_model(str(folder), device="cpu,cpu")
    row = sequence(model, "Say yes.", 12)
    assert torch.equal(logits(split, [row])[0], logits(model, [row])[0])


@pytest.mark.parametrize(
    ("config", "count", "size"),
    [(LLADA_8B, 291, 16_031_162_368), (DREAM_7B, 339, 15_231_233_024)],
    ids=["llada", "dream"],
)
def test_published_sizes(config: dict[str, object], count: int, size: int) -> None:
    """The names, shapes and bytes (bfloat16, as the index has it) of the real checkpoints."""
    llada = config["model_type"] == "llada"
    shape = (llada_shape if llada else dream_shape)(config, Path("config.json"))
    with torch.device("meta"):
        network = Transformer(shape)
    names = LLADA_NAMES if llada else DREAM_NAMES
    ours = {}
    for own, tensor in network.state_dict().items():
        module, _, kind = own.rpartition(".")
        _, number, part = module.split(".") if module.startswith("blocks.") else ("", "", module)
        ours[f"{names[part].format(n=number)}.{kind}"] = tuple(tensor.shape)
    assert ours == manifest(config)
    assert len(ours) == count
    assert 2 * sum(tensor.numel() for tensor in network.state_dict().values()) == size


def test_random_checkpoints_have_the_published_layout(arch: Arch, reference: Reference) -> None:
    assert {name: tuple(tensor.shape) for name, tensor in reference.weights.items()} == manifest(reference.config)
