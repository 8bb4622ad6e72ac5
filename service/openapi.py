"""The committed `openapi.json`: `python -m service.openapi` writes it, `--check` fails where it is out of date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from service.app import build_app
from service.config.settings import Settings

FILE = Path(__file__).with_name("openapi.json")


def document() -> str:
    """The API's OpenAPI document; the same whatever the environment and the installed version."""
    schema = build_app(Settings.model_construct()).openapi()
    schema["info"]["version"] = "1"
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    current = document()
    if "--check" in arguments:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != current:
            print(f"{FILE.name} is out of date: run python -m service.openapi", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
