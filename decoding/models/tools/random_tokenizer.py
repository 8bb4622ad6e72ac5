"""A small byte-level BPE tokenizer with the special tokens of a published checkpoint, for random checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLADA_SPECIAL: Final = (
    "<|startoftext|>", "<|endoftext|>", "[CLS]", "[gMASK]", "<|reserved_token_0|>", "<|reserved_token_1|>",
    "<|mdm_mask|>", "<|reserved_token_253|>", "<role>", "</role>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>",
)  # fmt: skip
DREAM_SPECIAL: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<tool_call>", "</tool_call>",
    "<|file_sep|>", "<|beginoftext|>", "<|mask|>",
)  # fmt: skip
DREAM_PLAIN: Final = frozenset({"<tool_call>", "</tool_call>", "<|file_sep|>"})
"""Added tokens that Qwen2.5 does not mark special."""
_WORDS: Final = (
    " the a and of to in is that it for on with as was at by be this are from or an you not have write sentence one"
    " word words dog ball beach story about no comma answer question please say yes name colour red blue green"
).split()
LLADA_CHAT: Final = (
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)
DREAM_CHAT: Final = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """256 byte tokens and the merges that spell a few words, with and without a leading space: (vocabulary, merges)."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in [form for plain in _WORDS for form in (f"Ġ{plain}", plain)]:
        for end in range(2, len(word) + 1):
            pair = (word[: end - 1], word[end - 1])
            if pair not in merges:
                merges.append(pair)
                tokens.append(word[:end])
    return {token: index for index, token in enumerate(tokens)}, merges


def write_llada_tokenizer(folder: Path) -> dict[str, int]:
    """tokenizer.json and tokenizer_config.json as LLaDA publishes them; returns the ids of the special tokens."""
    vocab, merges = vocabulary()
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in LLADA_SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {token: len(vocab) + index for index, token in enumerate(LLADA_SPECIAL)}
    settings = {
        "added_tokens_decoder": _added(ids, frozenset()),
        "bos_token": "<|startoftext|>",
        "chat_template": LLADA_CHAT,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    _write(folder / "tokenizer_config.json", settings)
    return ids


def write_dream_tokenizer(folder: Path) -> dict[str, int]:
    """vocab.json, merges.txt, added_tokens.json and tokenizer_config.json: Dream publishes no tokenizer.json."""
    vocab, merges = vocabulary()
    ids = {token: len(vocab) + index for index, token in enumerate(DREAM_SPECIAL)}
    _write(folder / "vocab.json", vocab)
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write(folder / "added_tokens.json", ids)
    settings = {
        "added_tokens_decoder": _added(ids, DREAM_PLAIN),
        "bos_token": "<|beginoftext|>",
        "chat_template": DREAM_CHAT,
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "DreamTokenizer",
    }
    _write(folder / "tokenizer_config.json", settings)
    return ids


def _added(ids: dict[str, int], plain: frozenset[str]) -> dict[str, dict[str, Any]]:
    return {str(index): {"content": token, "special": token not in plain} for token, index in ids.items()}


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
