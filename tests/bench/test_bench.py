"""The benchmark measures what it says; speed itself is never asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from decoding.compute import compute_mode
from decoding.models.registry import load_model
from gate_models.offline.bench import BenchSettings, run, table
from gate_models.offline.sequential import decode_sequentially


def test_bench_covers_every_cell_and_counts_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = BenchSettings(requests=3, repeats=1, concurrency=(1, 3), gen_length=8)
    result = run(settings, tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text())["model_hash"] == result["model_hash"]
    rows = {(cell["policy"], cell["how"]): cell["rows_per_request"] for cell in result["cells"]}
    for policy, expected in (("full_cfg", 16), ("base", 8), ("handoff:0.3:k8", 2 * 2 + 1)):
        own = {how: value for (name, how), value in rows.items() if name == policy}
        assert set(own) == {"sequential loop", "concurrency 1", "concurrency 3", "concurrency 3 invariant"}
        assert set(own.values()) == {expected}
    for cell in result["cells"]:
        assert cell["requests_per_s"] > 0
        assert ("share_of_peak_flops" in cell) == (cell["how"] == "concurrency 3")
    assert table(result) in capsys.readouterr().out


def test_the_floating_point_mode_is_put_back() -> None:
    """Flushing denormals is a mode of the whole thread: whoever calls us must not inherit it."""
    threads = torch.get_num_threads()
    with compute_mode(threads + 1):
        assert torch.tensor([1e-310], dtype=torch.float64).mul(0.5).item() == 0.0
        assert torch.get_num_threads() == threads + 1
    assert torch.tensor([1e-310], dtype=torch.float64).mul(0.5).item() > 0.0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("handoff", "tail", "rows"), [(8, 1, 16), (0, 1, 8), (3, 5, 7)])
def test_the_sequential_loop_decodes_whole_canvases(handoff: int, tail: int, rows: int) -> None:
    model = load_model("mini")
    prompt = model.codec.encode_prompt("Write one sentence. Use the words: dog, ball.")
    done = decode_sequentially(model, prompt, 8, scale=2.0, handoff=handoff, tail_width=tail, seed=0)
    assert done.rows == rows
    assert not set(done.tokens) & set(model.spec.suppressed_ids)
