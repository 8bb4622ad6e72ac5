"""Makes `docs/images/savings.png`: a real server under a mixed load, a real Prometheus, the dashboard's own queries.

`python -m tests.deploy.picture --seconds 150`
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path

from deploy.grafana.build import FOLDER
from deploy.grafana.render import View, render
from tests.deploy import load
from tests.deploy.prometheus import watched
from tests.service.process import ROOT

_CUTS = (0.15, 0.3, 0.45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "savings.png")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="astargate-picture-"))
    with watched(folder, *load.OPTIONS) as (server, prometheus):
        start = time.time()
        for turn in itertools.count():
            bodies = load.bodies(3 * len(load.SHAPES), seed=1000 * turn)
            for index, body in enumerate(bodies):
                if body["policy"].get("gate", {}).get("source") == "fraction":
                    body["policy"] = body["policy"] | {"gate": {"source": "fraction", "fraction": _CUTS[index % 3]}}
                elif body["policy"].get("preset") == "base":
                    body |= {"eos_fill": True, "gen_length": 24, "steps": 24}
            load.send(server, bodies)
            load.until_repaired(server)
            if time.time() - start > options.seconds:
                break
        prometheus.wait_scraped()
        view = View(prometheus.url, start, prometheus.last_scrape(), rate=20)
        board = json.loads((FOLDER / "savings.json").read_text(encoding="utf-8"))
        render(board, view, options.out)


if __name__ == "__main__":
    main()
