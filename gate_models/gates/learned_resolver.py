"""Which gate a request gets: the learned ones of its family inside their audited regime, else the gates below them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from decoding.gates.builtin import FractionGate, NeverGate
from decoding.gates.protocol import Gate, GateResolution, GateResolver, Regime
from decoding.policy.gate import GATE_DEFAULTS, GateSettings
from gate_models.features.argmax_fill import Reader
from gate_models.gates import artifact
from gate_models.gates.bundle import GateBundle
from gate_models.gates.calibrated import shipped_file
from gate_models.gates.constant import MEASURED
from gate_models.gates.learned import PolicyGate, RawGate, ValueGate

LEARNED: Final = ("raw", "policy", "value", "risk")
MOST_CACHED: Final = 1024
"""Gates kept so that requests of one setting share one; prices and margins are free, so the number is bounded."""


def shipped_folder() -> Path:
    """Folder of the gates that the package ships."""
    return shipped_file("gates")


class LearnedGates:
    """Resolves the learned sources; everything else, and `constant` where it is measured, goes to `below`.

    `bundles` may hold several gates of a family (other models, other canvases): the one that fits is taken, never one
    of another family. `refused`: (folder's name, reason) of the stored gates that must not be used. Thread-safe.
    """

    def __init__(
        self,
        bundles: Sequence[GateBundle],
        below: GateResolver,
        reader: Reader,
        refused: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.bundles = tuple(bundles)
        self.below = below
        self.reader = reader
        self.refused = tuple(refused)
        self._made: dict[tuple[object, ...], GateResolution] = {}

    @staticmethod
    def from_folders(folders: Sequence[Path], below: GateResolver, reader: Reader) -> LearnedGates:
        """The gates stored in `folders`; those that must not be used are left out with their reason."""
        bundles: list[GateBundle] = []
        refused: list[tuple[str, str]] = []
        for folder in folders:
            found, reasons = artifact.load_all(folder)
            bundles += found
            refused += reasons
        return LearnedGates(bundles, below, reader, refused)

    @property
    def version(self) -> str:
        """Digest of all gates held, for `build_info`; the constants' where none is learned."""
        if not self.bundles:
            return MEASURED
        return hashlib.sha256(" ".join(bundle.version for bundle in self.bundles).encode()).hexdigest()[:12]

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The gate for `setting` in `regime`, or why there is none and which audited regime is nearest."""
        if setting.source not in (*LEARNED, "constant"):
            return self.below.resolve(setting, regime)
        own = [bundle for bundle in self.bundles if bundle.family == regime.family]
        here = [bundle for bundle in own if bundle.regime.model_hash == regime.model_hash]
        if setting.source == "constant":
            measured = self.below.resolve(setting, regime)
            if measured.gate is not None or not here:
                return measured
        if not own:
            return self._without(setting, regime)
        bundle = min(here or own, key=lambda candidate: len(candidate.regime.differences(regime)))
        differing = bundle.regime.differences(regime)
        if differing:
            reason = f"outside the audited regime of the '{regime.family}' gate: {'; '.join(differing)}"
            return GateResolution(None, reason, bundle.regime.nearest(regime))
        key = (setting, id(bundle), regime.tail_width)
        choice = self._made.get(key)
        if choice is None:
            choice = self._choice(bundle, setting, regime.tail_width)
            if len(self._made) < MOST_CACHED:
                choice = self._made.setdefault(key, choice)
        return choice

    def _without(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The fallback without a gate of the family, or without a family; a stored one that was refused is the reason.

        The nearest regime is another family's: it tells what is audited here, its gate is not borrowed.
        """
        mine = [reason for family, reason in self.refused if family == regime.family]
        if mine:
            return GateResolution(None, f"the stored gate of family '{regime.family}' is refused: {mine[0]}")
        choice = self.below.resolve(setting, regime)
        audited = [bundle.regime for bundle in self.bundles if bundle.regime.model_hash == regime.model_hash]
        if choice.gate is not None or choice.nearest_regime is not None or not audited:
            return choice
        nearest = min(audited, key=lambda candidate: len(candidate.differences(regime)))
        return replace(choice, nearest_regime=nearest.nearest(regime))

    def _choice(self, bundle: GateBundle, setting: GateSettings, width: int) -> GateResolution:
        """The gate of `bundle` for `setting` at tail width `width`, which is audited."""
        common = (bundle.version, bundle.checkpoints, self.reader)
        constant = bundle.constants.get(width)
        missing = GateResolution(
            None, f"the '{bundle.family}' gate has no '{setting.source}' source: its training data could not fit one"
        )
        gate: Gate
        if setting.source not in bundle.sources:
            return missing
        if setting.source == "constant":
            if constant is None:
                return GateResolution(NeverGate(source="constant", version=bundle.version))
            gate = FractionGate(constant, source="constant", version=bundle.version)
        elif setting.source == "raw" and bundle.horizons is not None:
            gate = RawGate(*common, bundle.horizons)
        elif setting.source == "policy":
            gate = PolicyGate(*common, bundle.fates, bundle.horizons, constant)
        elif setting.source == "value" and width in bundle.values:
            price = GATE_DEFAULTS["row_price"] if setting.row_price is None else setting.row_price
            gate = ValueGate(*common, bundle.values[width], price)
        elif setting.source == "risk" and width in bundle.ladders:
            return self._risk(bundle, setting, width)
        else:
            return missing
        return GateResolution(gate)

    def _risk(self, bundle: GateBundle, setting: GateSettings, width: int) -> GateResolution:
        margin = GATE_DEFAULTS["margin"] if setting.margin is None else setting.margin
        confidence = GATE_DEFAULTS["confidence"] if setting.confidence is None else setting.confidence
        choice = bundle.ladders[width].choose(margin, confidence)
        if choice.setting is None:
            return GateResolution(None, f"risk gate of '{bundle.family}': {choice.refusal}")
        earliest, price = choice.setting
        common = (bundle.version, bundle.checkpoints, self.reader)
        return GateResolution(ValueGate(*common, bundle.values[width], price, earliest, source="risk"))
