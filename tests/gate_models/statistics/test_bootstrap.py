"""Intervals for means over prompts."""

from __future__ import annotations

import numpy as np
import pytest

from gate_models.statistics.bootstrap import difference_of_success


def test_a_few_prompts_that_agree_show_no_certainty():
    alike = difference_of_success(np.zeros(6))
    assert alike.value == 0.0
    assert alike.low < -0.1
    assert alike.high > 0.1
    many = difference_of_success(np.zeros(600))
    assert -0.01 < many.low < 0.0 < many.high < 0.01
    with pytest.raises(ValueError, match="no prompts"):
        difference_of_success(np.array([]))
