"""LLaDA and Dream written out plainly, from the published equations and tensor names. Imports nothing from `decoding`.

One sequence at a time, loops over heads, no fused attention: slow, and independent of the code under test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


class Reference:
    """A checkpoint folder and its forward pass in `dtype`."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.llada = self.config["model_type"] == "llada"
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        self.weights: dict[str, Tensor] = {}
        for file in sorted(set(index["weight_map"].values())):
            self.weights |= {name: tensor.to(dtype) for name, tensor in load_file(folder / file).items()}
        settings = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
        names = {entry["content"]: int(index) for index, entry in settings.items()}
        self.mask = names["<|mdm_mask|>" if self.llada else "<|mask|>"]
        self.ends = [names["<|endoftext|>"], names["<|eot_id|>" if self.llada else "<|im_end|>"]]
        special = {int(index) for index, entry in settings.items() if entry["special"]}
        rows = self.config["vocab_size"]
        self.forbidden = sorted((special | set(range(max(names.values()) + 1, rows))) - set(self.ends))
        self.kept = () if self.llada else (names["<|im_start|>"], names["<|beginoftext|>"])

    def part(self, layer: int, llada: str, dream: str) -> tuple[Tensor, Tensor | None]:
        name = f"model.transformer.blocks.{layer}.{llada}" if self.llada else f"model.layers.{layer}.{dream}"
        return self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")

    def top(self, llada: str, dream: str) -> Tensor:
        return self.weights[f"model.transformer.{llada}.weight" if self.llada else f"{dream}.weight"]

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        mean_square = (x * x).sum(-1, keepdim=True) / x.shape[-1]
        return x / (mean_square + self.config["rms_norm_eps"]).sqrt() * weight

    def rotate(self, x: Tensor) -> Tensor:
        """x [L, d]: pair (i, i + d/2) of position p turns by the angle p * theta^(-2i/d)."""
        length, d = x.shape
        turned = torch.empty_like(x)
        for i in range(d // 2):
            angle = torch.arange(length, dtype=torch.float64) * self.config["rope_theta"] ** (-2 * i / d)
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            turned[:, i] = x[:, i] * cos - x[:, i + d // 2] * sin
            turned[:, i + d // 2] = x[:, i + d // 2] * cos + x[:, i] * sin
        return turned

    def attention(self, h: Tensor, layer: int) -> Tensor:
        def apply(part: tuple[Tensor, Tensor | None]) -> Tensor:
            weight, bias = part
            return h @ weight.T + (0 if bias is None else bias)

        q = apply(self.part(layer, "q_proj", "self_attn.q_proj"))
        k = apply(self.part(layer, "k_proj", "self_attn.k_proj"))
        v = apply(self.part(layer, "v_proj", "self_attn.v_proj"))
        heads = self.config["n_heads" if self.llada else "num_attention_heads"]
        kv_heads = self.config["n_kv_heads" if self.llada else "num_key_value_heads"]
        d = q.shape[1] // heads
        mixed = []
        for head in range(heads):
            own = head * kv_heads // heads
            query = self.rotate(q[:, head * d : (head + 1) * d])
            key, value = self.rotate(k[:, own * d : (own + 1) * d]), v[:, own * d : (own + 1) * d]
            mixed.append(torch.softmax(query @ key.T / math.sqrt(d), -1) @ value)
        return torch.cat(mixed, -1) @ self.part(layer, "attn_out", "self_attn.o_proj")[0].T

    def logits(self, ids: Sequence[int]) -> Tensor:
        """[L, V]: row i predicts the token at position i (row 0 of Dream is its own, as upstream leaves it)."""
        x = self.top("wte", "model.embed_tokens")[torch.tensor(ids)]
        for layer in range(self.config["n_layers" if self.llada else "num_hidden_layers"]):
            x = x + self.attention(self.norm(x, self.part(layer, "attn_norm", "input_layernorm")[0]), layer)
            h = self.norm(x, self.part(layer, "ff_norm", "post_attention_layernorm")[0])
            gate = h @ self.part(layer, "ff_proj", "mlp.gate_proj")[0].T
            up = h @ self.part(layer, "up_proj", "mlp.up_proj")[0].T
            x = x + (gate / (1 + torch.exp(-gate)) * up) @ self.part(layer, "ff_out", "mlp.down_proj")[0].T
        logits = self.norm(x, self.top("ln_f", "model.norm")) @ self.top("ff_out", "lm_head").T
        return logits if self.llada else torch.cat([logits[:1], logits[:-1]])

    def guided(self, prompt: list[int], canvas: list[int], scale: float) -> Tensor:
        """Logits [G, V] of the canvas: c + w(c - u), the prompt masked in u but for the kept ids."""
        c = self.logits(prompt + canvas)[len(prompt) :]
        if scale == 0:
            return c
        hidden = [i if i in self.kept else self.mask for i in prompt]
        u = self.logits(hidden + canvas)[len(prompt) :]
        return c + scale * (c - u)

    def generate(self, prompt: list[int], length: int, steps: int, block: int | None, scale: float) -> list[int]:
        """LLaDA's published loop at temperature 0 for one sequence, MASK and other unwritable ids suppressed.

        Quotas are fixed when a block starts: m masks over S steps give floor(m / S) each, the first m mod S one more.
        """
        block = block or length
        per_block = steps // (length // block)
        canvas = [self.mask] * length
        for start in range(0, length, block):
            masks = canvas[start : start + block].count(self.mask)
            for step in range(per_block):
                quota = masks // per_block + (step < masks % per_block)
                logits = self.guided(prompt, canvas, scale)
                logits[:, self.forbidden] = -math.inf
                chances, tokens = torch.softmax(logits.double(), -1).max(-1)
                open_ = [i for i in range(start + block) if canvas[i] == self.mask]
                for i in sorted(open_, key=lambda i: (-float(chances[i]), i))[:quota]:
                    canvas[i] = int(tokens[i])
        return canvas


def manifest(config: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes of a published checkpoint, from its config.json."""
    c: dict[str, int] = {key: value for key, value in config.items() if isinstance(value, int)}
    if config["model_type"] == "llada":
        d, f, v, kv = c["d_model"], c["mlp_hidden_size"], c["embedding_size"], c["d_model"]
        shapes = {"wte": (v, d), "ln_f": (d,), "ff_out": (v, d)}
        for n in range(c["n_layers"]):
            own = {"attn_norm": (d,), "q_proj": (d, d), "k_proj": (kv, d), "v_proj": (kv, d), "attn_out": (d, d)}
            own |= {"ff_norm": (d,), "ff_proj": (f, d), "up_proj": (f, d), "ff_out": (d, f)}
            shapes |= {f"blocks.{n}.{name}": shape for name, shape in own.items()}
        return {f"model.transformer.{name}.weight": shape for name, shape in shapes.items()}
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = d * c["num_key_value_heads"] // c["num_attention_heads"]
    expected: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    expected["lm_head.weight"] = (v, d)
    for n in range(c["num_hidden_layers"]):
        weights = {"input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.o_proj": (d, d)}
        weights |= {"mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}
        for name, rows in {"q_proj": d, "k_proj": kv, "v_proj": kv}.items():
            weights[f"self_attn.{name}"] = (rows, d)
            expected[f"model.layers.{n}.self_attn.{name}.bias"] = (rows,)
        expected |= {f"model.layers.{n}.{name}.weight": shape for name, shape in weights.items()}
    return expected
