"""An inspect_ai task: texts that must hold a word, asked of `astargate serve`."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

ASKED = {"dog": "Write one sentence about a dog.", "boat": "Write one sentence about a boat and a river."}


@task
def words() -> Task:
    """Whether each text has its word."""
    dataset = [Sample(input=prompt, target=word) for word, prompt in ASKED.items()]
    return Task(
        dataset=dataset,
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(max_tokens=24, temperature=0.7, seed=1, stop_seqs=["\n\n"]),
    )
