"""The client needs neither the server's packages nor the plot extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.service.process import ROOT

SOURCE = ROOT / "clients" / "python" / "src"
BLOCKED = ("decoding", "gate_models", "service", "torch", "numpy", "matplotlib", "sklearn", "fastapi", "transformers")


def run(code: str) -> subprocess.CompletedProcess[str]:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r})); sys.path.insert(0, {str(SOURCE)!r})\n"
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, check=False)


def test_it_works_without_them():
    done = run("import astargate_client as a; print(a.keywords('dog'), a.Client().connection.base_url)")
    assert done.returncode == 0, done.stderr
    assert "keywords" in done.stdout


def test_the_block_is_real():
    assert "ModuleNotFoundError" in run("import numpy").stderr


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    from astargate_client import Trace
    from astargate_client.display import replies

    monkeypatch.setattr(replies, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"astargate-client\[plot\]"):
        Trace(start_step=0, steps=[], resumed=[], tokens=[], pieces=[]).plot()


def test_every_public_name_is_there_and_typed():
    import astargate_client

    assert all(hasattr(astargate_client, name) for name in astargate_client.__all__)
    assert (SOURCE / "astargate_client" / "py.typed").is_file()
