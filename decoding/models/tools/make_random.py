"""`astargate random-model --arch llada|dream --out DIR`: a small random checkpoint in the published layout.

File names, tensor names, config keys and the order of the special tokens are those of LLaDA-8B-Instruct and Dream-7B;
sizes, weights and vocabulary are not, so the text it writes is noise. For trying out a server and for the tests.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor

from decoding.models.tools.random_tokenizer import write_dream_tokenizer, write_llada_tokenizer
from decoding.models.transformer.shards import INDEX

Arch = Literal["llada", "dream"]
ARCHS: Final = get_args(Arch)
_HEADS: Final = frozenset({"model.transformer.ff_out.weight", "lm_head.weight"})


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a random network; the defaults make a checkpoint of about 2 MB."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    """Of Dream; LLaDA has as many as heads."""
    intermediate: int = 352
    context: int = 512
    shards: int = 3


def make_random(arch: Arch, folder: Path, *, seed: int = 0, size: Size | None = None) -> Path:
    """Write a checkpoint of `arch` to `folder` (made where it does not exist; an existing index is overwritten)."""
    size = size or Size()
    folder.mkdir(parents=True, exist_ok=True)
    if arch == "llada":
        ids = write_llada_tokenizer(folder)
        vocab_size = _rounded(max(ids.values()) + 1)
        config, shapes = _llada_config(size, ids, vocab_size), _llada_shapes(size, vocab_size)
    else:
        ids = write_dream_tokenizer(folder)
        vocab_size = _rounded(max(ids.values()) + 1)
        config, shapes = _dream_config(size, ids, vocab_size), _dream_shapes(size, vocab_size)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    _write_shards(folder, _weights(shapes, seed), size.shards)
    return folder


def _rounded(tokens: int) -> int:
    """As published: more embedding rows than tokens."""
    return -(-(tokens + 1) // 64) * 64


def _weights(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """bfloat16 weights that keep every block's output around 1 and the logits around 2."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            weights[name] = 0.1 * noise + (0.0 if name.endswith(".bias") else 1.0)
        else:
            gain = 2.0 if name in _HEADS else 1.0
            weights[name] = noise if _is_embedding(name) else noise * (gain / math.sqrt(shape[1]))
    return {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}


def _is_embedding(name: str) -> bool:
    return name.endswith(("wte.weight", "embed_tokens.weight"))


def _write_shards(folder: Path, weights: dict[str, Tensor], count: int) -> None:
    names = sorted(weights)
    weight_map = {}
    for number in range(count):
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        own = names[number::count]
        save_file({name: weights[name] for name in own}, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(own, file))
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _llada_shapes(size: Size, vocab_size: int) -> dict[str, tuple[int, ...]]:
    d, f = size.hidden, size.intermediate
    shapes: dict[str, tuple[int, ...]] = {
        "model.transformer.wte.weight": (vocab_size, d),
        "model.transformer.ln_f.weight": (d,),
        "model.transformer.ff_out.weight": (vocab_size, d),
    }
    for n in range(size.layers):
        block = f"model.transformer.blocks.{n}"
        shapes |= {f"{block}.{name}.weight": (d,) for name in ("attn_norm", "ff_norm")}
        shapes |= {f"{block}.{name}.weight": (d, d) for name in ("q_proj", "k_proj", "v_proj", "attn_out")}
        shapes |= {f"{block}.{name}.weight": (f, d) for name in ("ff_proj", "up_proj")}
        shapes[f"{block}.ff_out.weight"] = (d, f)
    return shapes


def _dream_shapes(size: Size, vocab_size: int) -> dict[str, tuple[int, ...]]:
    d, f = size.hidden, size.intermediate
    kv = d // size.heads * size.kv_heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab_size, d),
        "model.norm.weight": (d,),
        "lm_head.weight": (vocab_size, d),
    }
    for n in range(size.layers):
        layer = f"model.layers.{n}"
        shapes |= {f"{layer}.{name}.weight": (d,) for name in ("input_layernorm", "post_attention_layernorm")}
        for name, rows in (("q_proj", d), ("k_proj", kv), ("v_proj", kv)):
            shapes |= {f"{layer}.self_attn.{name}.weight": (rows, d), f"{layer}.self_attn.{name}.bias": (rows,)}
        shapes[f"{layer}.self_attn.o_proj.weight"] = (d, d)
        shapes |= {f"{layer}.mlp.{name}.weight": (f, d) for name in ("gate_proj", "up_proj")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (d, f)
    return shapes


def _llada_config(size: Size, ids: dict[str, int], vocab_size: int) -> dict[str, Any]:
    return {
        "activation_type": "silu",
        "alibi": False,
        "architectures": ["LLaDAModelLM"],
        "attention_layer_norm": False,
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": size.hidden,
        "embedding_size": vocab_size,
        "eos_token_id": ids["<|endoftext|>"],
        "include_bias": False,
        "include_qkv_bias": False,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "mask_token_id": ids["<|mdm_mask|>"],
        "max_sequence_length": size.context,
        "mlp_hidden_size": size.intermediate,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": size.heads,
        "n_kv_heads": size.heads,
        "n_layers": size.layers,
        "pad_token_id": ids["<|endoftext|>"],
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "use_cache": False,
        "vocab_size": vocab_size,
        "weight_tying": False,
    }


def _dream_config(size: Size, ids: dict[str, int], vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "mask_token_id": ids["<|mask|>"],
        "max_position_embeddings": size.context,
        "model_type": "Dream",
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "num_key_value_heads": size.kv_heads,
        "pad_token_id": ids["<|endoftext|>"],
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "use_sliding_window": False,
        "vocab_size": vocab_size,
    }
