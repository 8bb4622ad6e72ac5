"""Files of tasks of one's own: what is read, what is refused, and that equal tasks fall into one set."""

from __future__ import annotations

import json
import re

import pytest

from gate_models.offline.adapt.pipeline import own_tasks
from gate_models.offline.adapt.tasks import FEWEST, TasksError, read_tasks, split_counts, write_prompts
from gate_models.offline.benchmarks.tasks import family_of, load_task, task_names
from tests.service.process import ROOT

KINDS = ("dog", "cat", "cow", "pig", "owl", "fox", "hen")
ANIMALS = [f"{size} {kind}" for size in ("big", "small", "old", "wet") for kind in KINDS]


def line(animal, **fields):
    task = {
        "prompt": f"Write about a {animal}.",
        "constraint": {"type": "contains", "phrases": [animal]},
        "family": "zoo",
    }
    return json.dumps(task | fields)


def written(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_equal_tasks_count_once_and_keep_their_set(tmp_path):
    tasks = read_tasks(written(tmp_path / "tasks.jsonl", *map(line, ANIMALS), *map(line, ANIMALS[:9]), ""))
    assert [len(of_family) for of_family in tasks.values()] == [len(ANIMALS)]
    prompts = write_prompts(tasks, tmp_path / "tasks", lambda constraint: 16)["zoo"]
    again = read_tasks(written(tmp_path / "other.jsonl", *map(line, reversed(ANIMALS))))
    ids = {task.prompt: task.id for task in again["zoo"]}
    assert {prompt.prompt: prompt.id for prompt in prompts} == ids
    assert sum(split_counts(prompts, 0).values()) == len(ANIMALS)


def test_own_tasks_are_found_by_every_measurement_and_only_then(tmp_path):
    tasks = read_tasks(written(tmp_path / "tasks.jsonl", *map(line, ANIMALS)))
    (prompt, *_) = write_prompts(tasks, tmp_path / "tasks", lambda constraint: 16)["zoo"]
    assert "zoo" not in task_names()
    assert family_of(prompt) is None
    with own_tasks(tmp_path):
        assert len(load_task("zoo")) == len(ANIMALS)
        assert family_of(prompt) == "zoo"
        assert family_of(load_task("commongen-k3")[0]) == "commongen-k3"
    assert "zoo" not in task_names()


def test_the_longest_canvas_of_a_family_is_that_of_all_and_a_file_may_only_grow(tmp_path):
    tasks = read_tasks(written(tmp_path / "tasks.jsonl", *map(line, ANIMALS)))
    prompts = write_prompts(tasks, tmp_path / "tasks", lambda c: len(c.to_spec()["phrases"][0]))["zoo"]
    assert {prompt.gen_length for prompt in prompts} == {len("small dog")}
    more = read_tasks(written(tmp_path / "tasks.jsonl", *map(line, [*ANIMALS, "red ox"])))
    assert len(write_prompts(more, tmp_path / "tasks", lambda c: 9)["zoo"]) == len(ANIMALS) + 1
    with pytest.raises(TasksError, match=r"holds 1 tasks that the file lacks now"):
        write_prompts(tasks, tmp_path / "tasks", lambda c: 9)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object"),
        (line("dog", colour=1), "line 2 has the unknown field 'colour'"),
        (line("dog", constraint=None), "line 2: constraint is missing"),
        (line("dog", constraint={"type": "rhyme"}), "line 2: constraint.type"),
        (line("dog", constraint={"type": "keywords", "keywords": []}), "line 2: constraint.keywords"),
        (line("dog", family="my zoo"), "line 2: family must be a name"),
        (line("dog", family=None), "line 2: family must be a name"),
        (line("dog", prompt=7), "line 2: prompt must be a text"),
        (line("dog", prompt=" ", render_constraint=False), "line 2: prompt is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path, bad, message):
    with pytest.raises(TasksError) as refused:
        read_tasks(written(tmp_path / "tasks.jsonl", line("cat"), bad))
    assert message in str(refused.value)


def test_too_few_tasks_are_refused(tmp_path):
    lines = [line(animal) for animal in ANIMALS[: FEWEST - 1]]
    with pytest.raises(TasksError, match=f"needs at least {FEWEST}"):
        read_tasks(written(tmp_path / "few.jsonl", *lines, *lines))
    with pytest.raises(TasksError, match="holds no task"):
        read_tasks(written(tmp_path / "none.jsonl", ""))


def test_a_constraint_s_own_family_is_the_default(tmp_path):
    lines = [line(animal, family=None, constraint={"type": "no_comma"}) for animal in ANIMALS]
    assert list(read_tasks(written(tmp_path / "tasks.jsonl", *lines))) == ["ifeval-no-comma"]


def test_the_tutorial_s_file_is_one(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "own-tasks.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    tasks = read_tasks(tmp_path / "tasks.jsonl")
    assert {family: len(of_family) for family, of_family in tasks.items()} == {"animals-at-work": 240}
