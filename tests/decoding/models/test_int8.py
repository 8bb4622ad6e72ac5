"""`mini` in 8 bits: close to float32, the same whatever shares the batch, and refused where it cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoding.models.bert_mini import int8 as bert_mini_int8
from decoding.models.bert_mini.int8 import calibrate, hidden_range, in_int8, quantized
from decoding.models.bert_mini.network import MiniModel
from decoding.models.bert_mini.packed_weights import CODES, INPUT_SCALE, OUTPUT_SCALE, pack, row_codes, unpack
from decoding.models.checkpoint import CheckpointError
from decoding.models.registry import load_model, shipped_model
from tests.decoding.tiny import tiny_model
from tests.gate_models.checkpoint import save_tiny

needs_vnni = pytest.mark.skipif(not bert_mini_int8.supported(), reason="this CPU has no VNNI instructions")


def rows(count: int, seed: int, size: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(16, 66, (count, size), generator=generator)
    return ids, torch.full((count,), 8), torch.full((count,), size)


def logits(model: MiniModel, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return model.project(model.encode(*batch, always_mask=True))


@pytest.fixture(scope="module")
def pair() -> tuple[MiniModel, MiniModel]:
    """The tiny model in float32 and in 8 bits."""
    exact = tiny_model(scale=0.25)
    with torch.inference_mode(), calibrate(exact.network) as scales:
        logits(exact, rows(64, seed=1))
    return exact, MiniModel(quantized(exact.network, scales), exact.tokenizer, exact.spec, exact.device)


@needs_vnni
def test_logits_are_close_on_rows_that_calibration_did_not_see(pair: tuple[MiniModel, MiniModel]) -> None:
    exact, coded = (torch.log_softmax(logits(model, rows(32, seed=2)), -1) for model in pair)
    divergence = (exact.exp() * (exact - coded)).sum(-1)
    assert not torch.equal(exact, coded)
    assert float(divergence.mean()) < 0.01
    assert float((exact.argmax(-1) == coded.argmax(-1)).double().mean()) > 0.9


@needs_vnni
def test_a_row_does_not_depend_on_its_batch(pair: tuple[MiniModel, MiniModel]) -> None:
    """Codes have fixed scales: neighbours with a hundred times larger inputs change nothing."""
    coded = pair[1]
    hidden = torch.randn(40, 32, generator=torch.Generator().manual_seed(3))
    alone = coded.network.logits(hidden[:1])
    assert torch.equal(alone, coded.network.logits(torch.cat([hidden[:1], hidden[1:] * 100]))[:1])


@needs_vnni
def test_a_step_that_decides_nothing_asks_for_no_logits(pair: tuple[MiniModel, MiniModel]) -> None:
    """T > L runs such steps."""
    for model in pair:
        features = model.encode(*rows(1, seed=5), always_mask=True)[:0]
        assert model.project(features).shape == (0, model.spec.vocab_size)


def test_the_shipped_model_is_quantized_by_default_where_the_cpu_can() -> None:
    expected = "int8" if bert_mini_int8.supported() else "float32"
    assert load_model("mini").spec.precision == expected
    assert load_model("mini", quantization="none").spec.precision == "float32"
    assert load_model("mini", dtype="bfloat16").spec.precision == "bfloat16"


@needs_vnni
def test_the_shipped_scales_belong_to_the_shipped_weights() -> None:
    """KL(float32 || 8 bits) on open canvases of a real instruction, in nats."""
    exact, coded = load_model("mini", quantization="none"), load_model("mini", quantization="int8")
    prompt = exact.codec.encode_prompt("Write one sentence. Use the words: dog, ball, beach.")
    ids = torch.tensor([[*prompt, *[exact.spec.mask_id] * 16]])
    batch = ids, torch.tensor([len(prompt)]), torch.tensor([ids.shape[1]])
    errors = []
    for model in (exact, coded):
        features = model.encode(*batch, always_mask=False)[len(prompt) :]
        errors.append(torch.log_softmax(model.project(features), -1))
    divergence = (errors[0].exp() * (errors[0] - errors[1])).sum(-1)
    assert float(divergence.mean()) < 0.03


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"quantization": "int4"}, "use int8 or none"),
        ({"quantization": "int8", "dtype": "bfloat16"}, "float32"),
        ({"device": "cpu,cpu"}, "one device"),
    ],
)
def test_what_mini_cannot_be(options: dict[str, str], says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        load_model("mini", **options)


@needs_vnni
def test_a_checkpoint_without_scales_runs_in_float32_and_says_so_when_asked(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(shipped_model() / name, tmp_path)
    assert load_model(str(tmp_path)).spec.precision == "float32"
    with pytest.raises(CheckpointError, match="no 8-bit form"):
        load_model(str(tmp_path), quantization="int8")


def test_a_cpu_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_mini_int8, "supported", lambda: False)
    assert load_model("mini").spec.precision == "float32"
    with pytest.raises(CheckpointError, match="VNNI"):
        in_int8(tiny_model(), shipped_model())


def test_the_hidden_range_cuts_outliers_only_where_that_costs_less() -> None:
    even = torch.linspace(-0.2, 10, 5000)
    assert float(hidden_range(even)[1]) == pytest.approx(10, rel=0.06)
    outlier = torch.cat([torch.linspace(-0.2, 1, 500_000), torch.tensor([10.0])])
    assert float(hidden_range(outlier)[1]) < 8


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[MiniModel, Path]:
    """The tiny model, and a folder that holds it with coded weights."""
    exact = tiny_model(scale=0.25)
    with torch.inference_mode(), calibrate(exact.network) as seen:
        logits(exact, rows(64, seed=1))
    folder = tmp_path_factory.mktemp("packed")
    save_tiny(folder, exact)
    scales = bert_mini_int8.channel_scales(exact.network, seen)
    save_file(pack(exact.network.state_dict(), scales), folder / "model.safetensors")
    save_file(seen, folder / "int8.safetensors")
    return exact, folder


def test_coded_weights_are_read_back_within_half_a_code(packed: tuple[MiniModel, Path]) -> None:
    exact, folder = packed
    stored = load_file(folder / "model.safetensors")
    read = load_model(str(folder), quantization="none")
    assert isinstance(read, MiniModel)
    for name, weight in exact.network.state_dict().items():
        back = read.network.state_dict()[name]
        if name + OUTPUT_SCALE in stored:
            step = stored[name + OUTPUT_SCALE][:, None] / stored[name + INPUT_SCALE]
            assert bool(((back - weight).abs() <= step * 0.501).all())
            assert stored[name + CODES].dtype == torch.int8
        else:
            assert torch.allclose(back, weight, rtol=1e-3, atol=1e-6)


def test_quantising_what_was_read_back_rounds_no_second_time(packed: tuple[MiniModel, Path]) -> None:
    """The 8-bit products multiply exactly the stored codes."""
    stored = load_file(packed[1] / "model.safetensors")
    weights = unpack(stored)
    coded = [name for name in weights if name + CODES in stored]
    assert len(coded) == 2 * 4 + 1
    for name in coded:
        assert torch.equal(row_codes(weights[name] * stored[name + INPUT_SCALE])[0], stored[name + CODES])


@needs_vnni
def test_a_checkpoint_with_coded_weights_runs_in_8_bits(packed: tuple[MiniModel, Path]) -> None:
    exact, folder = packed
    coded = load_model(str(folder))
    assert coded.spec.precision == "int8"
    assert isinstance(coded, MiniModel)
    logs = [torch.log_softmax(logits(model, rows(32, seed=2)), -1) for model in (exact, coded)]
    assert float((logs[0].exp() * (logs[0] - logs[1])).sum(-1).mean()) < 0.01


def test_codes_without_their_scales_are_named(packed: tuple[MiniModel, Path], tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(packed[1], folder)
    stored = load_file(folder / "model.safetensors")
    del stored["layers.0.qkv.weight.output_scale"]
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.0\.qkv\.weight"):
        load_model(str(folder))
