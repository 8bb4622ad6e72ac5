"""`astargate bench-precision`: success per second of the forms of the shipped model.

The forms are float32, 8-bit integers, and shallower encoders (for speed alone). They take turns, round by round, so
that a busy machine slows all alike; seconds are the sum over rounds. A shallower encoder is the shipped one with layers
left out: untrained as such, it shows the most that a trained one could save.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from decoding.models.bert_mini.int8 import in_int8
from decoding.models.bert_mini.network import MiniModel
from decoding.models.registry import load_model, shipped_model
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.offline.evaluation.run import EvaluateSettings, decode
from gate_models.offline.runs import markdown
from gate_models.policies.names import parse_policy
from gate_models.statistics.intervals import wilson


def forms() -> dict[str, MiniModel]:
    """The model in float32 and 8 bits, whole and with every third or second layer left out."""
    whole = load_model("mini", quantization="none")
    assert isinstance(whole, MiniModel)
    made = {"float32": whole}
    for count in (4, 3):
        shallow = copy.copy(whole)
        shallow.network = copy.deepcopy(whole.network)
        kept = [i * len(whole.network.layers) // count for i in range(count)]
        shallow.network.layers = nn.ModuleList(shallow.network.layers[i] for i in kept)
        shallow.spec = replace(whole.spec, name=f"mini, {count} layers")
        made[f"float32, {count} of 6 layers, untrained"] = shallow
    return made | {"int8": in_int8(whole, shipped_model())}


def measure(task: str, policy: str, prompts: int, rounds: int) -> str:
    """A Markdown table."""
    models, named = forms(), parse_policy(policy)
    loaded = load_task(task, prompts)
    seconds, successes = dict.fromkeys(models, 0.0), dict.fromkeys(models, 0)
    rows = dict.fromkeys(models, 0)
    for number in range(rounds):
        settings = EvaluateSettings((task,), (policy,), n=prompts, samples=1, seed=number)
        for name, model in models.items():
            texts, took = decode(model, named, loaded, settings, name)
            seconds[name] += took
            rows[name] += sum(text.rows for text in texts)
            successes[name] += sum(text.satisfied for text in texts)
    return table(rows, seconds, successes, prompts * rounds)


def table(rows: Mapping[str, int], seconds: Mapping[str, float], successes: Mapping[str, int], count: int) -> str:
    """Rows and successes a second relative to the first form."""
    first = next(iter(rows))
    lines = []
    for name in rows:
        speed = rows[name] / seconds[name]
        low, high = wilson(successes[name], count)
        gain = successes[name] / seconds[name] / max(1e-9, successes[first] / seconds[first])
        lines.append(
            (
                name,
                f"{successes[name] / count:.2f} ({low:.2f}-{high:.2f})",
                f"{speed:.0f}",
                f"{speed / (rows[first] / seconds[first]):.2f}x",
                f"{gain:.2f}x",
            )
        )
    return markdown.table(("form", "success", "rows / s", "speed", "successes / s"), lines)
