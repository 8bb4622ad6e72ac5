"""Where a training starts: the source encoder's weights on the trimmed vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from decoding.mini import corpus
from decoding.models.bert_mini import vocabulary
from decoding.models.bert_mini.network import BertMiniConfig

INITIAL = "initial.safetensors"


LAYERS = (0, 2, 4, 6, 8, 10)
"""Layers of MPNet that are kept; a BERT of six layers keeps all."""
BERT_INPUTS = ("query", "key", "value")
RELATIVE = "encoder.relative_attention_bias.weight"


def prepare(data: Path, source: Path, out: Path) -> BertMiniConfig:
    """Write tokenizer.json, config.json and the initial weights to `out`, from the BERT or MPNet encoder in `source`.

    A tokenizer.json that lies in `out` already is kept, so that ids stay what they were.
    """
    source_tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    source_tokenizer.no_padding()
    source_tokenizer.no_truncation()
    out.mkdir(parents=True, exist_ok=True)
    if (out / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
        ids = tokenizer.get_vocab()
        tokens = sorted(ids, key=ids.__getitem__)
    else:
        texts = (s.text for group in corpus.load_corpora(data).values() for s in group)
        tokens = vocabulary.build_vocabulary(texts, source_tokenizer)
        vocabulary.build_tokenizer(tokens).save(str(out / "tokenizer.json"))
    weights = load_file(source / "model.safetensors")
    relative = weights.get(RELATIVE)
    inner, hidden = weights["encoder.layer.0.intermediate.dense.weight"].shape
    config = BertMiniConfig(
        vocab_size=len(tokens),
        hidden_size=hidden,
        num_layers=len(LAYERS),
        intermediate_size=inner,
        prompt_offset=128,
        layer_norm_eps=1e-12 if relative is None else 1e-5,
        relative_buckets=0 if relative is None else len(relative),
    )
    (out / "config.json").write_text(json.dumps(config.to_dict(), indent=1) + "\n")
    rows = vocabulary.initial_embeddings(tokens, source_tokenizer, weights["embeddings.word_embeddings.weight"])
    save_file(initial_weights(config, weights, rows), out / INITIAL)
    return config


def initial_weights(config: BertMiniConfig, source: dict[str, Tensor], embeddings: Tensor) -> dict[str, Tensor]:
    """The source's tensors under our names; a fresh head (identity transform, zero bias).

    MPNet has relative positions, no segments, and two rows before its first position.
    """
    mpnet = config.relative_buckets > 0
    places = source["embeddings.position_embeddings.weight"][2 if mpnet else 0 :]
    segments = source.get("embeddings.token_type_embeddings.weight")
    out = {
        "word_embeddings.weight": embeddings,
        "position_embeddings.weight": places[: config.max_positions].clone(),
        "segment_embeddings.weight": torch.zeros(2, config.hidden_size) if segments is None else segments.clone(),
        "embedding_norm.weight": source["embeddings.LayerNorm.weight"],
        "embedding_norm.bias": source["embeddings.LayerNorm.bias"],
        "head_transform.weight": torch.eye(config.hidden_size),
        "head_transform.bias": torch.zeros(config.hidden_size),
        "head_norm.weight": torch.ones(config.hidden_size) * 0.5,
        "head_norm.bias": torch.zeros(config.hidden_size),
        "head_bias": torch.zeros(config.vocab_size),
    }
    if mpnet:
        out["relative_bias.weight"] = source[RELATIVE]
    inputs = [f"attention.attn.{n}" for n in "qkv"] if mpnet else [f"attention.self.{n}" for n in BERT_INPUTS]
    names = {
        "attention.attn.o" if mpnet else "attention.output.dense": "attention_output",
        "attention.LayerNorm" if mpnet else "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "intermediate",
        "output.dense": "output",
        "output.LayerNorm": "output_norm",
    }
    kept = LAYERS if mpnet else range(config.num_layers)
    for layer, taken in enumerate(kept):
        prefix = f"encoder.layer.{taken}."
        for kind in ("weight", "bias"):
            out[f"layers.{layer}.qkv.{kind}"] = torch.cat([source[f"{prefix}{name}.{kind}"] for name in inputs])
            for theirs, ours in names.items():
                out[f"layers.{layer}.{ours}.{kind}"] = source[f"{prefix}{theirs}.{kind}"]
    return out
