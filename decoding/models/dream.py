"""Dream-7B (Base, Instruct): the published safetensors (Qwen2 names) in our own modules; no remote code.

The network predicts token i at position i - 1; the adapter undoes this shift. Position 0 is therefore never predicted
and was never masked in training, so the unconditional branch keeps the turn opener `<|im_start|>` (begin-of-text for a
base checkpoint), which stands at position 0 and carries nothing of the prompt; all other prompt tokens become MASK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

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
    Template,
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

MASK, EOS, TURN, TURN_END = "<|mask|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTEXT = 2048
"""The context that Dream's README documents; config.json inherits 131072 positions from Qwen2.5."""
SYSTEM = "You are a helpful assistant."

NAMES: Final = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "model.layers.{n}.input_layernorm",
    "query": "model.layers.{n}.self_attn.q_proj",
    "key": "model.layers.{n}.self_attn.k_proj",
    "value": "model.layers.{n}.self_attn.v_proj",
    "attention_output": "model.layers.{n}.self_attn.o_proj",
    "feed_forward_norm": "model.layers.{n}.post_attention_layernorm",
    "gate": "model.layers.{n}.mlp.gate_proj",
    "up": "model.layers.{n}.mlp.up_proj",
    "down": "model.layers.{n}.mlp.down_proj",
}
_FIELDS: Final = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "intermediate_size": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
}
_SUPPORTED: Final[Mapping[str, tuple[Any, ...]]] = {
    "hidden_act": ("silu",),
    "rope_scaling": (None,),
    "tie_word_embeddings": (False,),
    "use_mrope": (False,),
    "use_sliding_window": (False,),
}


def dream_template(system: str) -> Template:
    """Turns `<|im_start|>role NEWLINE content<|im_end|> NEWLINE`, opened by `system` unless the messages have one."""

    def render(messages: Sequence[Message]) -> list[str]:
        if not messages or messages[0][0] != "system":
            messages = [("system", system), *messages]
        pieces: list[str] = []
        for role, content in messages:
            pieces += [Marker(TURN), f"{role}\n{content}", Marker(TURN_END), "\n"]
        return [*pieces, Marker(TURN), "assistant\n"]

    return render


def base_template(begin: str | None) -> Template:
    """Begin-of-text where the tokenizer has one, then the bare prompt (base checkpoints)."""
    opening = [Marker(begin)] if begin else []
    return lambda messages: [*opening, *plain_template(messages)]


def begin_of_text(settings: Mapping[str, Any]) -> str | None:
    """The begin-of-text token that tokenizer_config.json names."""
    token = settings.get("bos_token")
    return token.get("content") if isinstance(token, dict) else token


def default_system(chat_template: str) -> str:
    """The system message that the checkpoint's own Jinja template falls back to."""
    written = re.search(r"<\|im_start\|>system(?:\\n|\n)([^<'\"{}]+)<\|im_end\|>", chat_template)
    return written[1] if written else SYSTEM


def dream_shape(config: Mapping[str, Any], where: Path) -> Shape:
    """The network that config.json describes. Raises `CheckpointError` where it is not the architecture of Dream-7B."""
    require(config, _SUPPORTED, where)
    rope = config.get("rope_parameters")  # how transformers 5 saves it
    if isinstance(rope, dict):
        require(rope, {"rope_type": ("default",)}, where)
        config = {"rope_theta": rope.get("rope_theta"), **config}
    return shape_of(config, _FIELDS, where, qkv_bias=True)


def load_dream(
    path: Path, *, name: str, devices: Sequence[torch.device], dtype: torch.dtype, quantization: Quantization = "none"
) -> TransformerModel:
    """Load a Dream folder as published. Raises `CheckpointError` naming the file, field or tensor at fault.

    Ids come from the tokenizer by name (MASK `<|mask|>`, end-of-text `<|endoftext|>` and `<|im_end|>`) and must agree
    with config.json. A checkpoint without a chat template is a base model and gets the bare prompt.
    """
    config, where = read_json(path / "config.json"), path / "config.json"
    shape = dream_shape(config, where)
    tokenizer, source = load_tokenizer(path), path / tokenizer_files(path)[0]
    mask, ends = resolve_mask(tokenizer, MASK, config, source), resolve_ends(tokenizer, (EOS, TURN_END), config, source)
    settings = read_json(path / "tokenizer_config.json")
    begin = begin_of_text(settings)
    kept = tuple(require_id(tokenizer, token, source) for token in (TURN, begin) if token)
    suppressed = unwritable_ids(tokenizer, shape.vocab_size, ends, mask, source)
    jinja = path / "chat_template.jinja"
    written = str(settings.get("chat_template") or (jinja.read_text(encoding="utf-8") if jinja.is_file() else ""))
    codec = ChatCodec(tokenizer, dream_template(default_system(written)) if written else base_template(begin))
    codec.check_template(source)
    shards = Shards.open(path)
    network = load_network(shards, shape, NAMES, devices=devices, dtype=dtype, quantization=quantization)
    spec = chat_model_spec(
        (path, shards),
        tokenizer,
        SpecialIds(mask, ends, suppressed, kept),
        name=name,
        architecture="dream",
        context=min(CONTEXT, int(config.get("max_position_embeddings") or CONTEXT)),
        vocab_size=shape.vocab_size,
    )
    return TransformerModel(network, codec, spec, devices[0], shifted=True)
