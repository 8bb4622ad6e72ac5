"""The checks of `instructions.jsonl`: shares of instructions and of prompts that a text meets."""

from __future__ import annotations

from typing import Any


def met(check: str, value: Any, text: str) -> bool:
    """Whether `text` passes one check."""
    if check == "contains":
        return str(value) in text.lower()
    if check == "no_comma":
        return "," not in text
    if check == "most_words":
        return len(text.split()) <= int(value)
    raise ValueError(f"no check '{check}'")


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """What lm-evaluation-harness asks of a task that judges texts itself."""
    verdicts = [bool(results[0].strip()) and met(check, value, results[0]) for check, value in doc["checks"]]
    return {"instructions_met": sum(verdicts) / len(verdicts), "prompts_met": float(all(verdicts))}
