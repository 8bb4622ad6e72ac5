"""`python -m tests.golden.record`: write the golden files anew, after a change of behaviour that is meant.

With `--check` it writes nothing and says what differs; `--one-by-one` sends one request at a time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.golden import replay


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        one_by_one = "--one-by-one" in arguments
        answers = replay.everything(Path(folder), concurrency=1 if one_by_one else replay.CONCURRENCY)
    files = {replay.GOLDEN: answers, replay.OPENAPI_GOLDEN: replay.stripped_openapi()}
    differing = False
    for path, content in files.items():
        if "--check" not in arguments:
            path.write_text(replay.written(content), encoding="utf-8")
            continue
        for line in replay.differences(replay.read(path), content):
            differing = True
            print(f"{path.name}: {line}")
    return int(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
