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


def prepare(data: Path, source: Path, out: Path) -> BertMiniConfig:
    """Write tokenizer.json, config.json and the initial weights (source encoder, trimmed vocabulary) to `out`."""
    corpora = corpus.load_corpora(data)
    source_tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    source_tokenizer.no_padding()
    source_tokenizer.no_truncation()
    tokens = vocabulary.build_vocabulary((s.text for group in corpora.values() for s in group), source_tokenizer)
    tokenizer = vocabulary.build_tokenizer(tokens)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = BertMiniConfig(vocab_size=len(tokens))
    (out / "config.json").write_text(json.dumps(config.to_dict(), indent=1) + "\n")
    weights = load_file(source / "model.safetensors")
    rows = vocabulary.initial_embeddings(tokens, source_tokenizer, weights["embeddings.word_embeddings.weight"])
    save_file(initial_weights(config, weights, rows), out / INITIAL)
    return config


def initial_weights(config: BertMiniConfig, source: dict[str, Tensor], embeddings: Tensor) -> dict[str, Tensor]:
    """The source BERT's tensors under our names; a fresh head (identity transform, zero bias)."""
    out = {
        "word_embeddings.weight": embeddings,
        "position_embeddings.weight": source["embeddings.position_embeddings.weight"][: config.max_positions].clone(),
        "segment_embeddings.weight": source["embeddings.token_type_embeddings.weight"].clone(),
        "embedding_norm.weight": source["embeddings.LayerNorm.weight"],
        "embedding_norm.bias": source["embeddings.LayerNorm.bias"],
        "head_transform.weight": torch.eye(config.hidden_size),
        "head_transform.bias": torch.zeros(config.hidden_size),
        "head_norm.weight": torch.ones(config.hidden_size) * 0.5,
        "head_norm.bias": torch.zeros(config.hidden_size),
        "head_bias": torch.zeros(config.vocab_size),
    }
    names = {
        "attention.output.dense": "attention_output",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "intermediate",
        "output.dense": "output",
        "output.LayerNorm": "output_norm",
    }
    for layer in range(config.num_layers):
        prefix = f"encoder.layer.{layer}."
        for kind in ("weight", "bias"):
            out[f"layers.{layer}.qkv.{kind}"] = torch.cat(
                [source[f"{prefix}attention.self.{n}.{kind}"] for n in ("query", "key", "value")]
            )
            for theirs, ours in names.items():
                out[f"layers.{layer}.{ours}.{kind}"] = source[f"{prefix}{theirs}.{kind}"]
    return out
