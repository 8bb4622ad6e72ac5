"""Constant cuts: chosen on prompts that no audit reads."""

from __future__ import annotations

import pytest

from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.offline.gate_training import calibrate_constant
from gate_models.offline.gate_training.settings import ConstantPlan
from tests.shipped import mini

TASK = "commongen-k3"


def test_audit_prompts_have_no_say(monkeypatch):
    asked = []

    def sweep(model, prompts, plan):
        asked.extend(prompts)
        return 1.0, {(width, cut): float(cut >= 0.3) for width in plan.widths for cut in calibrate_constant.GRID}

    monkeypatch.setattr(calibrate_constant, "_sweep", sweep)
    usable = sum(split_of(0, TASK, prompt.id) != "audit" for prompt in load_task(TASK))
    (cut,) = calibrate_constant.calibrate(mini(), ConstantPlan(tasks=(TASK,), widths=(1,), prompts=usable))
    assert cut.fraction == 0.3
    assert len(asked) == usable < len(load_task(TASK))
    assert {split_of(0, TASK, prompt.id) for prompt in asked} == {"train", "calibrate"}
    with pytest.raises(ValueError, match=f"has only {usable} prompts outside the audit set"):
        calibrate_constant.calibrate(mini(), ConstantPlan(tasks=(TASK,), prompts=usable + 1))
