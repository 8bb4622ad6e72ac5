"""Writes the lists that `make install` and the image install from: exact versions with the hashes of their files.

`python -m deploy.requirements.build`, after a change of `pyproject.toml` or `constraints.txt`. `server.txt` is what a
server needs; the list of an extra has what it adds, that of `release` stands alone. torch has no hash here, nor have
its CUDA libraries: the build of torch is chosen at the installation, and each has files of its own.

Hashes are those of the configured package index (`UV_DEFAULT_INDEX`). An index that serves files of its own needs
lists of its own, which this command writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
UNHASHED = re.compile(r"torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+")
"""Packages that come with the build of torch."""
ALONE = "release"
"""Extra of the tools that neither server nor tests need."""
_BLOCK = re.compile(r"^([A-Za-z0-9._-]+)==(\S+).*(?:\n {4}.*)*", re.MULTILINE)


def blocks(text: str) -> dict[str, str]:
    """Lines of each package of a list, its hashes among them, by its name."""
    return {match[1].lower(): match[0].rstrip() for match in _BLOCK.finditer(text)}


def pins(text: str) -> dict[str, str]:
    """Version of each package of a list or of `constraints.txt`, by the name that package indexes use."""
    return {re.sub(r"[-_.]+", "-", match[1]).lower(): match[2] for match in _BLOCK.finditer(text)}


def compiled(requirements: Sequence[str], *options: str) -> dict[str, str]:
    """All packages that `requirements` and `options` lead to, as the index has them now."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--constraint", "constraints.txt", *options, "-"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join(requirements), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {name: lines for name, lines in blocks(done.stdout).items() if not UNHASHED.fullmatch(name)}


def lists() -> dict[str, dict[str, str]]:
    """Packages of each list."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = configuration["build-system"]["requires"]  # pip fetches them unhashed unless they are there already
    server = compiled(tools, "pyproject.toml")
    packages_of = {"server": server, ALONE: compiled(configuration["project"]["optional-dependencies"][ALONE])}
    for extra in configuration["project"]["optional-dependencies"].keys() - {ALONE}:
        packages = compiled(tools, "pyproject.toml", "--extra", extra)
        packages_of[extra] = {name: lines for name, lines in packages.items() if name not in server}
    return packages_of


def main() -> int:
    packages_of = lists()
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    loose = {
        lines.split()[0] for packages in packages_of.values() for name, lines in packages.items() if name not in pinned
    }
    if loose:
        print("constraints.txt lacks", *sorted(loose), sep="\n")
        return 1
    for name, packages in packages_of.items():
        text = "".join(f"{lines}\n" for lines in packages.values())
        (FOLDER / f"{name}.txt").write_text(
            f"# Written by `python -m deploy.requirements.build`.\n{text}", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
