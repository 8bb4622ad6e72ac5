"""Both commit orders at the same rows: which policies to compare, and tables and plots from their results.

`--policies` prints a list for `astargate evaluate`. `--result` reads what that wrote of the lists `main`, `calibrated`,
`cheap` and `gates`, pools seeds, and writes a report (`report.md`), the numbers behind it
(`study.json`) and plots into the folder `--out`. Results of the other lists are read on their own prompts: `--factors`,
`--switch`, `--ablations`; `--recorded` on those that its census measured, beside the same prompts of `--result`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from gate_models.offline.order_study.ablations import ablations
from gate_models.offline.order_study.factors import factors
from gate_models.offline.order_study.learned_gates import shipped_reports
from gate_models.offline.order_study.plots import plot_frontiers, plot_switch
from gate_models.offline.order_study.points import beside_recorded, points, read
from gate_models.offline.order_study.report import Study, matched_table
from gate_models.offline.order_study.switch_curve import moves
from gate_models.offline.scorers.fluency import Fluency, load_judge

FIRST: Final = "guidance_boost:b0.8"
MAIN: Final = (
    "base",
    "full_cfg",
    "handoff:0.3",
    "handoff:0.6",
    "handoff:0.6:k4",
    "full_cfg:k4",
    "drained:0.7:k4",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
    f"drained:0.5:{FIRST}:m4:k2",
)
"""On every family, at its own canvas."""
CALIBRATED: Final = ("calibrated", "calibrated:k4", f"calibrated:{FIRST}", f"calibrated:{FIRST}:k4", "constant")
"""The family's own threshold or cut, as the server takes it; where there is none, guidance to the end."""
GATES: Final = ("constant:k8", "policy", "policy:k8", "value", "value:k8")
"""The learned gates, as the server takes them, at the tail widths that they are trained for; in other families guidance
to the end. `constant` itself is in `calibrated`.
"""
CHEAP: Final = (
    "base:k2",
    "base:k4",
    "handoff:0.15:k4",
    "handoff:0.3:k4",
    "handoff:0.3:k8",
    "drained:0.7:k8",
    f"drained:0.5:{FIRST}:k8",
    "drained:0.5:guidance_boost:k8",
)
"""Parallel tails below the rows of base decoding: without them the cheapest guidance-first policies have no rival."""
FACTORS: Final = (
    "base",
    "handoff:0.3",
    "handoff:0.6",
    "full_cfg",
    "drained:0.7:k4",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
)
"""Where one of canvas, weight and temperature is moved."""
SWITCH_FRACTIONS: Final = (0.1, 0.15, 0.22, 0.3, 0.45, 0.6, 0.8)
SWITCH: Final = (
    "base",
    "full_cfg",
    "full_cfg:guidance_boost",
    *(f"handoff:{f:g}" for f in SWITCH_FRACTIONS),
    *(f"handoff:{f:g}:guidance_boost" for f in SWITCH_FRACTIONS),
)
"""The switch curve S(t) of Definition 1 in both orders: fresh runs that hand off at each fraction."""
ABLATIONS: Final = (f"drained:0.5:{FIRST}:k2", f"drained:0.5:{FIRST}:k8", f"drained:0.5:{FIRST}:m4:k2")
"""Guidance first as it is, and `--without whole_words` or `--without text_margins`."""
LISTS: Final = {
    "main": MAIN,
    "calibrated": CALIBRATED,
    "cheap": CHEAP,
    "gates": GATES,
    "factors": FACTORS,
    "switch": SWITCH,
    "ablations": ABLATIONS,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", choices=LISTS, help="print the policies of a list and stop")
    parser.add_argument("--result", type=Path, nargs="+", help="results of the lists main, calibrated, cheap and gates")
    parser.add_argument("--recorded", type=Path, nargs="+", default=[], help="of recorded, on prompts of a census")
    parser.add_argument("--factors", type=Path, nargs="+", default=[], help="of factors, one factor moved in each")
    parser.add_argument("--switch", type=Path, nargs="+", default=[], help="of switch")
    parser.add_argument("--ablations", type=Path, nargs="+", default=[], help="of ablations, whole and --without parts")
    parser.add_argument("--command", action="append", default=[], help="how the results were made, for the report")
    parser.add_argument("--out", type=Path, help="folder to write")
    arguments = parser.parse_args()
    if arguments.policies:
        print(",".join(LISTS[arguments.policies]))
        return
    if not arguments.result or arguments.out is None:
        parser.error("give --policies, or --result with --out")
    fluency = Fluency(load_judge())
    texts, common = read(arguments.result)
    parts = {name: read(getattr(arguments, name))[0] for name in ("recorded", "factors", "switch", "ablations")}
    found = {group: points(own, fluency) for group, own in texts.items()}
    switch = {group: points(own, fluency) for group, own in parts["switch"].items()}
    study = Study(
        found=found,
        common=common | {"judge": fluency.judge.name},
        commands=tuple(arguments.command),
        pooled=(*MAIN, *CALIBRATED, *CHEAP),
        factors=factors(texts, parts["factors"], fluency),
        factor_policies=FACTORS,
        moves=moves(switch),
        horizons={group: points(own, fluency) for group, own in beside_recorded(texts, parts["recorded"]).items()},
        audits=shipped_reports(common["model_hash"]),
        ablations=ablations({group: points(own, fluency) for group, own in parts["ablations"].items()}),
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "report.md").write_text(study.markdown(), encoding="utf-8")
    lines = json.dumps(study.to_json(), indent=None)
    (arguments.out / "study.json").write_text(lines.replace('{"policy"', '\n{"policy"') + "\n", encoding="utf-8")
    plot_frontiers(found, arguments.out / "frontiers.png")
    if study.moves:
        plot_switch(study.moves, arguments.out / "switch.png")
    print(matched_table(found))


if __name__ == "__main__":
    main()
