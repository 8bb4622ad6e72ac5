"""Predicates in Python behind entry points: what is loaded, what is left out, and what a bad one answers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from decoding.constraints import ConstraintError, parse
from decoding.constraints.general.predicates import installed, no_repeats

MODULE = '''
def polite(text):
    """Says please.

    More words."""
    return "please" in text.lower()

polite.instruction = "say please"

def half(text): return 0.5

def far(text): return 3

def broken(text): raise RuntimeError("no")

number = 3
'''
POINTS = """[astargate.predicates]
polite = own_checks:polite
half = own_checks:half
far = own_checks:far
broken = own_checks:broken
number = own_checks:number
missing = own_checks:nothing
no_repeats = own_checks:half
bad name! = own_checks:half
"""


def install(folder: Path) -> None:
    """A package with predicates, as an installer leaves it."""
    (folder / "own_checks.py").write_text(MODULE)
    info = folder / "own_checks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-checks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)


@pytest.fixture
def own(tmp_path, monkeypatch):
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    yield installed()
    installed.cache_clear()


def test_what_is_installed_is_listed(own, caplog):
    assert list(own) == ["no_repeats", "broken", "far", "half", "polite"]
    assert own["polite"].description == "Says please."
    assert parse({"type": "python", "name": "polite"}).instruction() == "Say please."
    assert parse({"type": "python", "name": "half"}).instruction() == "The text must pass the check half."


def test_what_is_left_out_is_logged(own, caplog):
    installed.cache_clear()
    with caplog.at_level(logging.WARNING):
        installed()
    assert all(name in caplog.text for name in ("'missing'", "'number'", "'no_repeats'", "'bad name!'"))


@pytest.mark.parametrize(
    ("name", "text", "score", "detail"),
    [
        ("polite", "Please go.", 1.0, "score 1"),
        ("polite", "Go.", 0.0, "score 0"),
        ("half", "Go.", 0.5, "score 0.5"),
        ("far", "Go.", 0.0, "which is no score"),
        ("broken", "Go.", 0.0, "RuntimeError"),
    ],
)
def test_verdicts(own, name, text, score, detail):
    outcome = parse({"type": "python", "name": name}).evaluate(text)
    assert (outcome.score, outcome.satisfied) == (score, score == 1.0)
    assert detail in outcome.checks[0].detail


@pytest.mark.parametrize("name", ["os.system", "", 3, None, "polite"])
def test_unknown_names_are_refused_with_the_known(name):
    installed.cache_clear()
    with pytest.raises(ConstraintError) as caught:
        parse({"type": "python", "name": name})
    assert caught.value.param == "name"
    if isinstance(name, str) and name:
        assert "no_repeats" in caught.value.reason


@pytest.mark.parametrize(
    ("text", "score"),
    [("a dog runs", 1.0), ("The the dog", 2 / 3), ("dog dog dog", 1 / 3), ("no, no", 0.5), ("!", 1.0)],
)
def test_no_repeats(text, score):
    assert no_repeats(text) == pytest.approx(score)
