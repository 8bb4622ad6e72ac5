"""LLaDA-8B (Base, Instruct, 1.5): GSAI-ML's published safetensors in our own modules; no remote code.

Layout as published: `model.transformer.wte`, `.blocks.N.{attn_norm, q_proj, k_proj, v_proj, attn_out, ff_norm, ff_proj,
up_proj, ff_out}`, `.ln_f`, `.ff_out` (the head). Logits are not shifted; the unconditional branch masks the whole
prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from decoding.models.checkpoint import CheckpointError
from decoding.models.transformer.adapter import (
    SpecialIds,
    TransformerModel,
    chat_model_spec,
    load_network,
    require,
    shape_of,
)
from decoding.models.transformer.blocks import Shape
from decoding.models.transformer.chat_codec import (
    ChatCodec,
    Marker,
    Message,
    load_tokenizer,
    plain_template,
    read_json,
    require_id,
    resolve_ends,
    resolve_mask,
    tokenizer_files,
    unwritable_ids,
)
from decoding.models.transformer.quantization import Quantization
from decoding.models.transformer.shards import Shards

MASK, EOS, EOT = "<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>"
BOS, HEADER, HEADER_END = "<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>"

NAMES: Final = {
    "embedding": "model.transformer.wte",
    "norm": "model.transformer.ln_f",
    "head": "model.transformer.ff_out",
    "attention_norm": "model.transformer.blocks.{n}.attn_norm",
    "query": "model.transformer.blocks.{n}.q_proj",
    "key": "model.transformer.blocks.{n}.k_proj",
    "value": "model.transformer.blocks.{n}.v_proj",
    "attention_output": "model.transformer.blocks.{n}.attn_out",
    "feed_forward_norm": "model.transformer.blocks.{n}.ff_norm",
    "gate": "model.transformer.blocks.{n}.ff_proj",
    "up": "model.transformer.blocks.{n}.up_proj",
    "down": "model.transformer.blocks.{n}.ff_out",
}
_FIELDS: Final = {
    "hidden_size": "d_model",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "num_kv_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
}
_SUPPORTED: Final[Mapping[str, tuple[Any, ...]]] = {
    "block_type": ("llama",),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "rope": (True,),
    "alibi": (False,),
    "attention_layer_norm": (False,),
    "bias_for_layer_norm": (False, None),
    "block_group_size": (1,),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "input_emb_norm": (False,),
    "multi_query_attention": (None, False),
    "rope_full_precision": (True,),
    "rope_scaling": (None,),
    "scale_logits": (False,),
    "weight_tying": (False,),
}


def llada_template(messages: Sequence[Message]) -> list[str]:
    """Begin-of-text; per message a role header, the trimmed content and end-of-turn; then the assistant's header."""
    pieces: list[str] = [Marker(BOS)]
    for role, content in messages:
        pieces += [Marker(HEADER), role, Marker(HEADER_END), "\n\n" + content.strip(), Marker(EOT)]
    return [*pieces, Marker(HEADER), "assistant", Marker(HEADER_END), "\n\n"]


def llada_shape(config: Mapping[str, Any], where: Path) -> Shape:
    """The network that config.json describes. Raises `CheckpointError` where it is not the architecture of LLaDA-8B."""
    if any(key in config for key in ("num_experts", "n_routed_experts")):
        raise CheckpointError(
            f"{where} describes a mixture of experts (LLaDA-MoE, LLaDA2); only the dense LLaDA-8B family is supported"
        )
    require(config, _SUPPORTED, where)
    rows = config.get("embedding_size") or config.get("vocab_size")
    config = {**config, "vocab_size": rows, "n_kv_heads": config.get("n_kv_heads") or config.get("n_heads")}
    return shape_of(config, {"vocab_size": "vocab_size", **_FIELDS}, where, qkv_bias=False)


def load_llada(
    path: Path, *, name: str, devices: Sequence[torch.device], dtype: torch.dtype, quantization: Quantization = "none"
) -> TransformerModel:
    """Load a LLaDA folder as published. Raises `CheckpointError` naming the file, field or tensor at fault.

    Ids come from the tokenizer by name (MASK `<|mdm_mask|>`, end-of-text `<|endoftext|>`, `<|eot_id|>`) and must agree
    with config.json. A checkpoint without a chat template is a base model and gets the bare prompt.
    """
    config, where = read_json(path / "config.json"), path / "config.json"
    shape = llada_shape(config, where)
    tokenizer, source = load_tokenizer(path), path / tokenizer_files(path)[0]
    mask, ends = resolve_mask(tokenizer, MASK, config, source), resolve_ends(tokenizer, (EOS, EOT), config, source)
    for marker in (BOS, HEADER, HEADER_END):
        require_id(tokenizer, marker, source)
    suppressed = unwritable_ids(tokenizer, shape.vocab_size, ends, mask, source)
    chat = "chat_template" in read_json(path / "tokenizer_config.json") or (path / "chat_template.jinja").is_file()
    codec = ChatCodec(tokenizer, llada_template if chat else plain_template)
    codec.check_template(source)
    shards = Shards.open(path)
    network = load_network(shards, shape, NAMES, devices=devices, dtype=dtype, quantization=quantization)
    spec = chat_model_spec(
        (path, shards),
        tokenizer,
        SpecialIds(mask, ends, suppressed),
        name=name,
        architecture="llada",
        context=int(config.get("max_sequence_length") or 4096),
        vocab_size=shape.vocab_size,
    )
    return TransformerModel(network, codec, spec, devices[0], shifted=False)
