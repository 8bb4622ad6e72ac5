"""Templates, special tokens and ids of the chat models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from decoding.models.dream import SYSTEM, default_system, dream_template
from decoding.models.llada import llada_template
from decoding.models.protocol import CanvasDefaults, DenoisingModel
from decoding.models.registry import load_model
from decoding.models.tools.make_random import Arch
from decoding.models.tools.random_tokenizer import DREAM_CHAT
from decoding.models.transformer.chat_codec import ChatCodec, load_tokenizer
from tests.decoding.models.test_loading import Copy, edit

TEXTS = ("Say yes.", "  two\n\nlines \n", "naïve 你好 🙂 dog's", "")


def rendered(folder: Path, messages: list[tuple[str, str]]) -> list[int]:
    """What transformers makes of the checkpoint's own Jinja template."""
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=load_tokenizer(folder),
        bos_token=settings["bos_token"],
        chat_template=settings["chat_template"],
    )
    chat = [{"role": role, "content": content} for role, content in messages]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False).input_ids)


@pytest.mark.parametrize("text", TEXTS)
def test_prompt_equals_the_checkpoints_template(folder: Path, model: DenoisingModel, text: str) -> None:
    assert model.codec.encode_prompt(text) == rendered(folder, [("user", text)])


def test_conversation_equals_the_checkpoints_template(folder: Path, model: DenoisingModel) -> None:
    assert isinstance(model.codec, ChatCodec)
    turns = [("system", "Be brief."), ("user", "Say yes."), ("assistant", "yes"), ("user", "And no?")]
    assert model.codec.encode_chat(turns) == rendered(folder, turns)


def test_templates_in_words() -> None:
    assert "".join(llada_template([("user", " Hi ")])) == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert "".join(dream_template(SYSTEM)([("user", " Hi ")])) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_default_system_message_is_the_checkpoints() -> None:
    assert default_system(DREAM_CHAT) == SYSTEM
    assert default_system(DREAM_CHAT.replace("a helpful assistant", "a poet")) == "You are a poet."
    assert default_system("{{ messages }}") == SYSTEM


@given(text=st.text())
def test_typed_special_tokens_stay_text(loaded: dict[Arch, DenoisingModel], text: str) -> None:
    for model, markers in ((loaded["llada"], "<|mdm_mask|><|eot_id|>"), (loaded["dream"], "<|mask|><|im_end|>")):
        special = {i for i in model.spec.suppressed_ids if i < model.spec.vocab_size} | set(model.spec.end_ids)
        ids = model.codec.encode(f"{markers}{text}{markers}")
        assert not special & set(ids)
        assert model.codec.decode(ids).startswith(markers)
        assert "".join(model.codec.pieces(model.codec.encode("Say yes."))) == "Say yes."


def test_invalid_unicode_is_a_value_error(model: DenoisingModel) -> None:
    with pytest.raises(ValueError, match="Unicode"):
        model.codec.encode_prompt("\ud800")


def test_spec(model: DenoisingModel, folder: Path, arch: Arch) -> None:
    spec, config = model.spec, json.loads((folder / "config.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    name = {int(index): entry["content"] for index, entry in settings.items()}
    assert name[spec.mask_id] == {"llada": "<|mdm_mask|>", "dream": "<|mask|>"}[arch]
    assert [name[i] for i in spec.end_ids] == ["<|endoftext|>", {"llada": "<|eot_id|>", "dream": "<|im_end|>"}[arch]]
    assert [name[i] for i in spec.keep_prompt_ids] == {"llada": [], "dream": ["<|im_start|>", "<|beginoftext|>"]}[arch]
    assert not set(spec.suppressed_ids) & set(spec.end_ids)
    assert set(range(max(name) + 1, config["vocab_size"])) < set(spec.suppressed_ids)  # rows without a token
    if arch == "dream":  # Qwen2.5's tool markers are ordinary tokens
        plain = {int(index) for index, entry in settings.items() if not entry["special"]}
        assert plain
        assert not plain & set(spec.suppressed_ids)
    assert spec.max_prompt + spec.max_canvas == 192
    assert spec.architecture == arch


def test_canvas_defaults(model: DenoisingModel) -> None:
    assert model.spec.default_block_length == 32
    for length, steps, expected in (
        (32, 32, CanvasDefaults(None, False)),
        (64, 64, CanvasDefaults(32, False)),
        (96, 48, CanvasDefaults(32, False)),
        (80, 80, CanvasDefaults(20, False)),
        (64, 63, CanvasDefaults(None, True)),
        (67, 67, CanvasDefaults(None, True)),
    ):
        assert model.spec.canvas_defaults(length, steps) == expected
    assert load_model("mini").spec.canvas_defaults(64, 64) == CanvasDefaults(None, False)


def test_base_checkpoints_get_the_bare_prompt(folder: Path, copy: Copy, arch: Arch) -> None:
    other = copy(folder)
    edit(other / "tokenizer_config.json", chat_template=None)
    codec = load_model(str(other)).codec
    opened = {"llada": "", "dream": "<|beginoftext|>"}[arch]
    assert codec.decode(codec.encode_prompt("Say yes.")) == f"{opened}Say yes."


def test_a_tokenizer_json_is_preferred(
    checkpoints: dict[Arch, Path], copy: Copy, loaded: dict[Arch, DenoisingModel]
) -> None:
    other = copy(checkpoints["dream"])
    load_tokenizer(other).save(str(other / "tokenizer.json"))
    for name in ("vocab.json", "merges.txt", "added_tokens.json"):
        (other / name).unlink()
    prompt = "Write a story 你好."
    assert load_model(str(other)).codec.encode_prompt(prompt) == loaded["dream"].codec.encode_prompt(prompt)
