"""A server's parts in this process, turned by hand: requests, their engine and their shadow audit, without a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.runner import Runner
from decoding.gates.protocol import Regime
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates, shipped_cuts
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.resolver import LearnedGates
from gate_models.offline.benchmarks.tasks import load_task
from service.backend.backend import Backend
from service.config.settings import Settings
from service.generation.prepare import Prepared, prepare
from service.metrics.recorder import Metrics
from service.schemas.generate import GenerateRequest
from service.shadow_audit.audit import Shadow
from service.shadow_audit.tables import AUDIT_COLUMNS, AUDITS, AuditRecord
from service.storage.database import Database
from tests.shipped import mini

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
CONSTANT = {"gate": {"source": "constant"}, "tail_width": 8}
BODY: dict[str, Any] = {"constraint": KEYWORDS, "gen_length": 16, "policy": CONSTANT, "seed": 1}


def regime(family: str = "commongen-k3", tail_width: int = 8) -> Regime:
    """The shipped model's own, on a canvas of 16."""
    return Regime(
        mini().spec.hash, family, 2.0, 16, 16, tail_width, 1.0, None, "probability", "confidence", "as_is"
    )  # fmt: skip


class Desk:
    """One server. `cut`: where its constant gate hands off (None: the shipped cuts); `never`: its gate
    hands off nowhere; `bundles`: learned gates.
    """

    def __init__(
        self, database: Database, *, cut: float | None = None, never: bool = False,
        bundles: tuple[GateBundle, ...] = (), owner: str = "one", **settings: Any,
    ) -> None:  # fmt: skip
        model = mini()
        own = tuple(shipped_cuts()) if cut is None and not never else (ConstantCut(regime(), cut),)
        self.metrics = Metrics()
        self.engine = Engine(model, runner=Runner(model, invariant=True), observer=self.metrics)
        gates = LearnedGates(bundles, ConstantGates(own), TextReader.of(model.spec, model.codec))
        self.backend = Backend(model, self.engine, gates, gates.version, own, thresholds=(), reports={})
        self.settings = Settings(**{"audit_share": 1.0, "batch_invariant": True, **settings})
        self.shadow = Shadow(self.settings, database, self.backend, self.metrics, owner)

    def admit(self, **body: Any) -> tuple[Prepared, list[Handle]]:
        """Choose and submit, as `Service.generation` does."""
        request = GenerateRequest(**{**BODY, **body})
        prepared = self.shadow.choose(prepare(request, mini(), self.shadow.gates, self.settings))
        return prepared, self.engine.submit_all(prepared.jobs)

    def serve(self, **body: Any) -> tuple[Prepared, list[Handle]]:
        """A request from admission to its end."""
        prepared, handles = self.admit(**body)
        with self.shadow.watching(prepared, handles):
            self.run()
        return prepared, handles

    def serve_prompts(self, count: int, first: int = 0, task: str = "commongen-k3", **body: Any) -> None:
        """Requests of different prompts, decoded together."""
        asked = [
            self.admit(**{**body, "constraint": prompt.constraint, "prompt": prompt.prompt})
            for prompt in load_task(task)[first : first + count]
        ]
        self.run()
        for prepared, handles in asked:
            with self.shadow.watching(prepared, handles):
                pass

    def run(self) -> None:
        while self.engine.step():
            pass

    def audit(self) -> None:
        """Turn until no audit waits."""
        self.shadow.turn()
        while self.shadow.store.waiting():
            self.shadow.turn()
            self.run()
        self.shadow.watch.refresh()

    def admin(self, share: float, **body: Any) -> Prepared:
        """A request that an operator wants audited at another share."""
        request = GenerateRequest(**{**BODY, **body, "audit_share": share})
        return self.shadow.choose(prepare(request, mini(), self.shadow.gates, self.settings))

    def value(self, name: str) -> float:
        """A metric, summed over its labels; an instance's own where `name` has labels."""
        lines = self.metrics.exposition().decode().splitlines()
        own = [line for line in lines if line.startswith((f"astargate_{name} ", f"astargate_{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in own)


def audits(database: Database) -> list[AuditRecord]:
    """All of them, complete pairs in their order."""
    with database.read() as connection:
        return [AuditRecord.of(row) for row in connection.execute(select(*AUDIT_COLUMNS).order_by(AUDITS.c.sequence))]


def text_of(tokens: Sequence[int]) -> str:
    return mini().codec.decode(list(tokens))
