"""The shipped prompts: complete, valid, distinct, sized for their canvas, and not what training saw."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from decoding.constraints import FAMILIES, parse
from decoding.mini.topics import load_pairs
from decoding.models.bert_mini.vocabulary import UNK
from decoding.models.registry import shipped_model
from gate_models.offline.benchmarks import held_out, tasks
from gate_models.offline.benchmarks.build import BUILDERS, lines_of
from gate_models.offline.benchmarks.tasks import SUBTASKS, TaskPrompt, load_task, task_names

OLDER = {"commongen", "few-keywords", "no-comma", "word-count"}
FURTHER = {"ccg-multi-mixed", "held-out-wording"}
DATA = Path(os.environ.get("ASTARGATE_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "commongen").is_dir(), reason="the benchmark data are not in the repository"
)


def test_every_family_has_a_task() -> None:
    assert SUBTASKS == FAMILIES
    assert set(task_names()) == set(SUBTASKS) | OLDER | FURTHER == set(BUILDERS)
    assert tasks.expand(["all"]) == SUBTASKS
    assert tasks.expand(["commongen", "all", "ccg-length"]) == ("commongen", *SUBTASKS)


def test_an_unknown_task_is_refused() -> None:
    for call in (lambda: load_task("nope"), lambda: tasks.expand(["nope"]), lambda: load_task("../prompts/commongen")):
        with pytest.raises(ValueError, match="is unknown; tasks: all"):
            call()
    with pytest.raises(ValueError, match="has 108 prompts"):
        load_task("collie-c06a", 109)


@pytest.mark.parametrize("name", [*SUBTASKS, *sorted(OLDER | FURTHER)])
def test_prompts_are_valid_and_distinct(name: str) -> None:
    prompts = load_task(name)
    assert len(prompts) >= (108 if name == "collie-c06a" else 200)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    if name not in OLDER and name != "collie-c06a":  # whose 108 records have 56 different targets
        assert len({prompt.text() for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        constraint = parse(prompt.constraint)
        assert prompt.task == name
        assert prompt.gen_length == prompt.steps
        assert prompt.gen_length in {16, 24, 32, 48, 64}
        assert constraint.minimum_words() < prompt.gen_length
        assert name not in SUBTASKS or constraint.family == name


def test_text_says_what_is_asked_for_once() -> None:
    shown = TaskPrompt("x", "t", "Write about dogs.", {"type": "no_comma"}, 16, 16)
    assert shown.text() == "Write about dogs. Do not use any commas."
    own = TaskPrompt("x", "t", "Leave out commas.", {"type": "no_comma"}, 16, 16, render_constraint=False)
    assert own.text() == "Leave out commas."
    assert TaskPrompt("x", "t", "", {"type": "no_comma"}, 16, 16).text() == "Do not use any commas."


def test_the_model_can_spell_every_prompt() -> None:
    tokenizer = Tokenizer.from_file(str(shipped_model() / "tokenizer.json"))
    unknown = tokenizer.token_to_id(UNK)
    for name in task_names():
        for prompt in load_task(name):
            ids = tokenizer.encode(prompt.text(), add_special_tokens=False).ids
            assert unknown not in ids, prompt.text()
            assert len(ids) < 128


def test_demands_are_mixed_from_the_first_hundred_on() -> None:
    first = load_task("ccg-sentiment", 100)
    assert Counter(p.constraint["target"] for p in first) == {"positive": 50, "negative": 50}
    for name in ("ifeval-kw-freq", "ifeval-letter-freq", "ifeval-capital-freq"):
        relations = Counter(p.constraint["relation"] for p in load_task(name, 100))
        assert relations["at_least"] > relations["less_than"] >= 20
    sizes = Counter(p.constraint["type"] for p in load_task("ccg-multi", 99))
    assert sizes == {"keywords": 33, "all_of": 66}


def test_collie_prompts_carry_targets_alone() -> None:
    for name, fields in (("collie-c07", {"type", "words"}), ("collie-c06a", {"type", "min_words", "max_chars"})):
        for prompt in load_task(name):
            assert set(prompt.constraint) == fields
            assert prompt.prompt == "Write one sentence."


def test_held_out_wordings_ask_for_every_family_in_turn() -> None:
    prompts = load_task("held-out-wording")
    assert not any(prompt.render_constraint for prompt in prompts)
    families = [parse(prompt.constraint).family for prompt in prompts[: len(held_out.FROM)]]
    assert families == list(held_out.FROM)
    for prompt in prompts:
        assert parse(prompt.constraint).instruction().lower() not in prompt.text().lower()


@needs_data
@pytest.mark.parametrize("name", BUILDERS)
def test_the_files_are_rebuilt_byte_for_byte(name: str) -> None:
    shipped = (tasks.prompts_folder() / f"{name}.jsonl").read_text(encoding="utf-8")
    assert "".join(lines_of(name, DATA)) == shipped


@needs_data
def test_concept_sets_and_pairs_are_not_trained_on() -> None:
    trained = set()
    for name in ("train.jsonl.gz", "train_v1_0.jsonl.gz"):
        with gzip.open(DATA / "commongen" / name, "rt", encoding="utf-8") as lines:
            trained |= {frozenset(json.loads(line)["concepts"]) for line in lines}
    dev = {}
    for line in (DATA / "commongen" / "dev.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        dev[record["id"]] = frozenset(record["concepts"])
    for name in ("commongen-k3", "commongen-k4", "commongen-k5"):
        assert not {dev[int(prompt.id.split("-")[1])] for prompt in load_task(name)} & trained
    pairs = {(topic["id"], branch["id"]) for topic, branch in load_pairs(DATA, "train", 0.0)}
    assert not {tuple(prompt.id.split("-")[-2:]) for prompt in load_task("cognac-avoidance")} & pairs
