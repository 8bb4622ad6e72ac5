"""Which policy to deploy: is one ahead of full CFG at fewer rows, or of best-of-n at the same rows, and which wins?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from gate_models.offline.deployment.results import FULL, PolicyRow, SamplesByPolicy, first_pass
from gate_models.offline.runs.markdown import table
from gate_models.statistics.bootstrap import by_prompt, paired_bootstrap

ALL: Final = "all prompts"
PolicyRows = Mapping[str, Sequence[PolicyRow]]
"""Rows by task; `ALL` pools them."""
Finding = Literal["yes", "tie", "no", "open", "-"]
_EQUAL: Final = 1e-9


def against_full(row: PolicyRow, full: PolicyRow) -> Finding:
    """Whether a policy has more success than full CFG at fewer rows."""
    if row.rows >= full.rows:
        return "no"
    ahead = row.success.value - full.success.value
    return "yes" if ahead > _EQUAL else "tie" if ahead >= -_EQUAL else "no"


def against_best_of(row: PolicyRow) -> Finding:
    """Whether a policy is ahead of every best-of-n at the same rows; `open` where that was not run far enough to tell,
    "-" where one text of each costs more.

    Best-of-n of the policy itself is another policy, and counts.
    """
    bounds = [best.bounds for best in row.best_of.values() if best.bounds is not None]
    if not bounds:
        return "-"
    value = row.success.value
    if any(lower > value + _EQUAL for lower, _ in bounds):
        return "no"
    if any(upper > value + _EQUAL for _, upper in bounds):
        return "open"
    return "tie" if any(upper >= value - _EQUAL for _, upper in bounds) else "yes"


def best_beside(row: PolicyRow) -> str:
    """The best-of-n run that stands best at the rows of a policy: its success, or the bounds of it."""
    known = {name: best.bounds for name, best in row.best_of.items() if best.bounds is not None}
    if not known:
        return ""
    name = max(known, key=lambda name: (known[name][1], known[name][0]))
    lower, upper = known[name]
    return (f"{lower:.3f}" if lower == upper else f"{lower:.3f} to {upper:.3f}") + f" ({name})"


def by_family(rows: PolicyRows, policy: str) -> str:
    """Where a policy does what it is for, family by family, and how often; empty where it was not run."""
    heads = ["family (prompts)", FULL, policy, f"minus {FULL} [95 %]", "more at fewer rows"]
    heads += ["best of n at these rows", "beats it"]
    lines = []
    won: Counter[Finding] = Counter()
    ahead: Counter[Finding] = Counter()
    certain = 0
    for task, listed in rows.items():
        policies = {row.policy: row for row in listed}
        if task == ALL or policy not in policies or FULL not in policies:
            continue
        row, full = policies[policy], policies[FULL]
        more, beats = against_full(row, full), against_best_of(row)
        won[more] += 1
        ahead[beats] += 1
        certain += row.gain is not None and row.gain.low > 0 and row.rows < full.rows
        lines.append(
            [
                f"{task} ({row.prompts})",
                f"{full.success.value:.3f} at {full.rows:.1f}",
                f"{row.success.value:.3f} at {row.rows:.1f}",
                "" if row.gain is None else row.gain.signed,
                "equal" if more == "tie" else more,
                best_beside(row),
                beats,
            ]
        )
    if not won:
        return ""
    counted = (
        f"`{policy}`: more success than full CFG at fewer rows on {won['yes']} of {won.total()} families (with an "
        f"interval above 0 on {certain}), equal on {won['tie']} more. Ahead of every best-of-n at the same rows on "
        f"{ahead['yes']}, level on {ahead['tie']}, behind on {ahead['no']}; cheaper than any one text on {ahead['-']}; "
        f"best-of-n was not run far enough to tell on {ahead['open']}. Point estimates."
    )
    return "\n".join([f"#### {policy}, family by family", "", table(heads, lines), "", counted]) + "\n"


def _best(rows: Sequence[PolicyRow]) -> list[PolicyRow]:
    """The largest success first; among equals the fewest rows."""
    return sorted(rows, key=lambda row: (-row.success.value, row.rows))


def winners(rows: PolicyRows, tasks: Mapping[str, SamplesByPolicy]) -> str:
    """The policy with the largest success on every set of prompts, at no more rows than full CFG and at any."""
    lines = []
    wins: Counter[str] = Counter()
    for task in (ALL, *(task for task in rows if task != ALL)):
        listed = rows.get(task, ())
        full = next((row for row in listed if row.policy == FULL), None)
        if full is None:
            continue
        within = _best([row for row in listed if row.rows <= full.rows + _EQUAL])
        first = within[0]
        if task != ALL:
            wins[first.policy] += 1
        other = next((row for row in within[1:] if first_pass(row.policy) != first.policy), None)
        lines.append(
            [
                task,
                _named(first),
                "" if other is None else _less(tasks[task], first, other),
                _named(_best(listed)[0]),
            ]
        )
    counted = ", ".join(f"`{name}` on {count}" for name, count in wins.most_common())
    text = f"At no more rows than full CFG the most success (then the fewest rows) has {counted} families."
    heads = ["prompts", f"at no more rows than {FULL}", "minus the next [95 %]", "at any rows"]
    return "\n".join(["#### What wins", "", table(heads, lines), "", text]) + "\n"


def _named(row: PolicyRow) -> str:
    return f"{row.policy}: {row.success.value:.3f} at {row.rows:.1f}"


def _less(cells: SamplesByPolicy, first: PolicyRow, other: PolicyRow) -> str:
    difference = paired_bootstrap(by_prompt(cells[first.policy]), by_prompt(cells[other.policy]))
    return f"{difference.signed} ({other.policy})"
