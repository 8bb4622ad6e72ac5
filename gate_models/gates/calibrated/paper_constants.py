"""When guidance may end on LLaDA-8B-Instruct by the paper's own tables, as `constant` gates; not measured here.

`artifacts/llada-8b-instruct.json` holds, by family, the family cut (Table 24: chosen on the freeze grid, K = 1), the
median and quartiles of a* over the handoff prompts (Table 9), full CFG and freezing at a* (Table 1), and success along
the gate sweep at K = 4, 8 and 16 (Table 22; printed to two digits). At the wide tails the cut is the earliest gate of
Table 22 from which every later one keeps full CFG's success within 0.03 (our rule on the paper's numbers), or `never`.
At K = 1 it is the paper's family cut, but never earlier than the cut at K = 4: family cuts maximise base success and
lose up to .14 of full CFG's (Table 24 beside Table 1).

The paper names no checkpoint hash. A model is taken for LLaDA-8B-Instruct by its architecture ("llada") and by the last
part of its name (the hub id, or the folder that holds it); another checkpoint in a folder of that name gets the cuts
too, which is why each says that it was not measured here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from decoding.gates.protocol import Regime
from decoding.models.protocol import ModelSpec
from gate_models.gates.calibrated.constant import ConstantCut, earliest_safe
from gate_models.gates.calibrated.files import shipped_file

SOURCE: Final = "paper, not re-measured here"
VERSION: Final = "paper"
ARCHITECTURE: Final = "llada"
NAME: Final = "llada-8b-instruct"
MARGIN: Final = 0.03
NARROWEST_SWEPT: Final = 4
"""The smallest tail width of Table 22."""
_TABLES: Final = "Tables 1, 9, 22 and 24"


def is_llada_instruct(spec: ModelSpec) -> bool:
    """Whether a model is LLaDA-8B-Instruct, by architecture and name (an `@revision` aside)."""
    name = spec.name.split("@")[0].rstrip("/").split("/")[-1]
    return spec.architecture == ARCHITECTURE and name.lower() == NAME


def paper_constants(spec: ModelSpec) -> list[ConstantCut]:
    """The paper's cuts as constants of the model of `spec`; empty unless it is LLaDA-8B-Instruct."""
    if not is_llada_instruct(spec):
        return []
    content = json.loads(shipped_file(f"{NAME}.json").read_text(encoding="utf-8"))
    cuts = []
    for family, figures in content["families"].items():
        for width in (1, *map(int, figures["sweep"])):
            regime = Regime(
                model_hash=spec.hash,
                family=family,
                guidance_scale=content["setting"]["guidance_scale"],
                steps=content["setting"]["steps"],
                gen_length=content["setting"]["gen_length"],
                tail_width=width,
                temperature=1.0,
                block_length=None,
                confidence="probability",
                order="confidence",
                eos="as_is",
            )
            cuts.append(ConstantCut(regime, cut_of(figures, width, content["gates"]), _evidence(figures, width)))
    return cuts


def cut_of(figures: Mapping[str, Any], width: int, gates: list[float]) -> float | None:
    """The cut of a family at a tail width; None: `never`."""
    if not figures["handoff_prompts"]:
        return None
    if width == 1:
        safe = cut_of(figures, NARROWEST_SWEPT, gates)
        return None if safe is None else max(float(figures["family_cut"]), safe)
    curve = dict(zip(gates, figures["sweep"][str(width)], strict=True))
    return earliest_safe(curve, figures["sweep_full_cfg"], MARGIN + 1e-9)


def _evidence(figures: Mapping[str, Any], width: int) -> dict[str, Any]:
    printed = {name: value for name, value in figures.items() if name != "sweep"}
    sweep = {} if width == 1 else {"success": figures["sweep"][str(width)]}
    return {"source": SOURCE, "version": VERSION, "tables": _TABLES, **printed, **sweep}
