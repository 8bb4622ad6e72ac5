"""Checkpoint folders: one shard or several, and every way in which one can be broken, refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoding.models.checkpoint import CheckpointError
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.models.tools.make_random import Arch, make_random
from decoding.models.transformer.shards import INDEX

Copy = Callable[[Path], Path]
QUERY = {
    "llada": "model.transformer.blocks.1.q_proj.weight",
    "dream": "model.layers.1.self_attn.q_proj.weight",
}


def edit(file: Path, **changes: Any) -> None:
    """Change top-level keys of a JSON file; None removes one."""
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def shard_of(folder: Path, tensor: str) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][tensor]


def rewrite(folder: Path, tensor: str, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """Change the shard that holds `tensor`; the index is left alone."""
    file = shard_of(folder, tensor)
    content = load_file(file)
    change(content)
    save_file(content, file)
    return file


def refusal(folder: Path, **options: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(str(folder), **options)
    return str(caught.value)


def features(model: DenoisingModel) -> torch.Tensor:
    ids = torch.tensor([model.codec.encode_prompt("Say yes.") + [model.spec.mask_id] * 4])
    length = torch.tensor([ids.shape[1]])
    return model.encode(ids, length - 4, length, always_mask=False)


def test_a_random_checkpoint_is_small_seeded_and_loadable(arch: Arch, tmp_path: Path) -> None:
    make_random(arch, tmp_path / "x")
    assert len(list((tmp_path / "x").glob("*.safetensors"))) >= 2
    assert sum(file.stat().st_size for file in (tmp_path / "x").iterdir()) < 5_000_000
    first = load_model(str(tmp_path / "x"))
    make_random(arch, tmp_path / "y")
    make_random(arch, tmp_path / "z", seed=1)
    assert load_model(str(tmp_path / "y")).spec.hash == first.spec.hash != load_model(str(tmp_path / "z")).spec.hash


def test_one_file_without_index(folder: Path, copy: Copy, model: DenoisingModel) -> None:
    other = copy(folder)
    everything = {}
    for file in sorted(other.glob("*.safetensors")):
        everything |= load_file(file)
        file.unlink()
    (other / INDEX).unlink()
    save_file(everything, other / "model.safetensors")
    loaded = load_model(str(other))
    assert torch.equal(features(loaded), features(model))
    assert loaded.spec.hash != model.spec.hash


def test_missing_shard(folder: Path, copy: Copy) -> None:
    other = copy(folder)
    (other / "model-00002-of-00003.safetensors").unlink()
    message = refusal(other)
    assert "model-00002-of-00003.safetensors does not exist" in message


def test_truncated_shard(folder: Path, copy: Copy) -> None:
    other = copy(folder)
    file = other / "model-00001-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert f"{file} is not a complete safetensors file" in refusal(other)


def test_no_weights(folder: Path, copy: Copy) -> None:
    other = copy(folder)
    (other / INDEX).unlink()
    assert INDEX in refusal(other)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_broken_index(folder: Path, copy: Copy, content: str) -> None:
    other = copy(folder)
    (other / INDEX).write_text(content)
    assert INDEX in refusal(other)


def test_index_may_not_leave_the_folder(folder: Path, copy: Copy) -> None:
    other = copy(folder)
    (other / INDEX).write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    assert "'../a.safetensors', which is not a safetensors file in the same folder" in refusal(other)


def test_misshaped_tensor_is_named(folder: Path, copy: Copy, arch: Arch) -> None:
    other, name = copy(folder), QUERY[arch]
    file = rewrite(other, name, lambda content: content.update({name: content[name][:-1].contiguous()}))
    assert refusal(other) == f"{file}: tensor {name} has shape (47, 48), expected (48, 48)"


def test_missing_tensor_is_named(folder: Path, copy: Copy, arch: Arch) -> None:
    other, name = copy(folder), QUERY[arch]
    file = rewrite(other, name, lambda content: content.__delitem__(name))
    assert f"{file} does not hold tensor {name}" in refusal(other)
    weight_map = json.loads((other / INDEX).read_text())["weight_map"]
    edit(other / INDEX, weight_map={key: value for key, value in weight_map.items() if key != name})
    assert f"tensor {name} is missing" in refusal(other)


def test_extra_tensor_is_named(folder: Path, copy: Copy, arch: Arch) -> None:
    other, name = copy(folder), QUERY[arch]
    extra = name.replace(".1.", ".9.")
    file = rewrite(other, name, lambda content: content.update({extra: content[name].clone()}))
    assert f"{file} holds tensor {extra}" in refusal(other)
    weight_map = json.loads((other / INDEX).read_text())["weight_map"]
    edit(other / INDEX, weight_map=weight_map | {extra: file.name})
    assert f"{file}: tensor {extra} is not part of this architecture" in refusal(other)


def test_integer_tensors_are_refused(folder: Path, copy: Copy, arch: Arch) -> None:
    other, name = copy(folder), QUERY[arch]
    rewrite(other, name, lambda content: content.update({name: content[name].to(torch.int8)}))
    assert f"tensor {name} has dtype I8" in refusal(other)


TOKENIZER = {"llada": "tokenizer.json", "dream": "vocab.json"}


def test_missing_tokenizer(folder: Path, copy: Copy, arch: Arch) -> None:
    other = copy(folder)
    (other / TOKENIZER[arch]).unlink()
    assert "no tokenizer" in refusal(other)


def test_broken_tokenizer(folder: Path, copy: Copy, arch: Arch) -> None:
    other = copy(folder)
    (other / TOKENIZER[arch]).write_text("{}")
    message = refusal(other)
    assert TOKENIZER[arch] in message or "added_tokens.json" in message


def test_tokenizer_of_another_model(checkpoints: dict[Arch, Path], copy: Copy, arch: Arch) -> None:
    own, foreign = checkpoints[arch], checkpoints["dream" if arch == "llada" else "llada"]
    other = copy(own)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json"):
        (other / name).unlink(missing_ok=True)
        if (foreign / name).is_file():
            (other / name).write_bytes((foreign / name).read_bytes())
    assert "tokenizer" in refusal(other)


def test_end_of_text_may_be_the_turns_end(folder: Path, copy: Copy, model: DenoisingModel) -> None:
    other = copy(folder)
    edit(other / "config.json", eos_token_id=list(model.spec.end_ids[::-1]))
    assert load_model(str(other)).spec.end_ids == model.spec.end_ids


@pytest.mark.parametrize("key", ["mask_token_id", "eos_token_id"])
def test_ids_must_agree_with_the_tokenizer(folder: Path, copy: Copy, key: str) -> None:
    other = copy(folder)
    edit(other / "config.json", **{key: 3})
    assert f"{key} 3" in refusal(other)


def test_vocabulary_smaller_than_the_tokenizer(folder: Path, copy: Copy) -> None:
    other = copy(folder)
    edit(other / "config.json", vocab_size=300, embedding_size=300)
    assert "vocab_size 300" in refusal(other)


def test_mask_id_may_come_from_the_tokenizer(folder: Path, copy: Copy, model: DenoisingModel) -> None:
    other = copy(folder)
    edit(other / "config.json", mask_token_id=None)
    assert load_model(str(other)).spec.mask_id == model.spec.mask_id


@pytest.mark.parametrize(
    ("arch", "key", "value"),
    [
        ("llada", "alibi", True),
        ("llada", "attention_layer_norm", True),
        ("llada", "weight_tying", True),
        ("llada", "block_type", "sequential"),
        ("llada", "d_model", 50),
        ("llada", "n_heads", "4"),
        ("llada", "mlp_hidden_size", None),
        ("dream", "rope_scaling", {"type": "yarn"}),
        ("dream", "tie_word_embeddings", True),
        ("dream", "hidden_act", "gelu"),
        ("dream", "num_key_value_heads", 3),
        ("dream", "rope_theta", None),
        ("llada", "rms_norm_eps", 1e30),
        ("llada", "rms_norm_eps", -1.0),
        ("llada", "rope_theta", 0),
        ("llada", "rope_theta", float("nan")),
        ("dream", "rms_norm_eps", "small"),
        ("dream", "rope_theta", True),
        ("llada", "max_sequence_length", 2),
    ],
)
def test_unsupported_config(checkpoints: dict[Arch, Path], copy: Copy, arch: Arch, key: str, value: object) -> None:
    other = copy(checkpoints[arch])
    edit(other / "config.json", **{key: value})
    message = refusal(other)
    assert "config.json" in message
    by_another_name = {"d_model", "n_heads", "num_key_value_heads", "rms_norm_eps", "max_sequence_length"}
    assert key in message or key in by_another_name


def test_rope_as_transformers_5_writes_it(
    checkpoints: dict[Arch, Path], copy: Copy, loaded: dict[Arch, DenoisingModel]
) -> None:
    other = copy(checkpoints["dream"])
    rope = {"rope_type": "default", "rope_theta": 1000000.0}
    edit(other / "config.json", rope_theta=None, rope_parameters=rope)
    assert torch.equal(features(load_model(str(other))), features(loaded["dream"]))


def test_unknown_architectures(tmp_path: Path, checkpoints: dict[Arch, Path], copy: Copy) -> None:
    for config, word in (({"model_type": "llada2_moe"}, "'llada2_moe'"), ({}, "''")):
        (tmp_path / "config.json").write_text(json.dumps(config))
        message = refusal(tmp_path)
        assert word in message
        assert "LLaDA-8B" in message
        assert "Dream-7B" in message
    other = copy(checkpoints["llada"])
    edit(other / "config.json", num_experts=64)
    assert "mixture of experts" in refusal(other)


def test_folders_and_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert "does not exist" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "nowhere")
    asked = []

    def offline(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision))
        assert not any("py" in pattern for pattern in allow_patterns)
        raise OSError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"'owner/model@v1' is neither .* \(no route to host\); without network"):
        load_model("owner/model@v1")
    assert asked == [("owner/model", "v1")]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(folder))
    assert load_model("owner/model").spec.name == "owner/model"
    assert load_model(str(folder)).spec.name == folder.name


@pytest.mark.parametrize(
    "options", [{"dtype": "float8"}, {"device": "gpu"}, {"device": "cuda:99"}, {"quantization": "int3"}]
)
def test_unknown_options(folder: Path, options: dict[str, str]) -> None:
    assert next(iter(options.values())) in refusal(folder, **options)


@pytest.mark.skipif(find_spec("torchao") is not None, reason="torchao is installed")
def test_quantization_without_torchao(folder: Path) -> None:
    assert "pip install 'astargate[quantization]'" in refusal(folder, quantization="int8")


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
def test_int8_stays_close(folder: Path, model: DenoisingModel) -> None:
    quantized = load_model(str(folder), quantization="int8")
    exact, near = model.project(features(model)), quantized.project(features(quantized))
    assert not torch.equal(exact, near)
    assert (exact - near).abs().mean() < 0.1 * exact.std()


def test_mini_takes_no_quantization() -> None:
    with pytest.raises(CheckpointError, match="one device"):
        load_model("mini", device="cpu,cpu")
