"""Measures how the code is laid out, and prints Markdown tables: `python -m tests.structure [--rev REV]`.

Modules per folder, floors of the import graph, repeated passages, long functions and wide signatures. With `--rev` the
same is measured of another commit, and both stand side by side.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {name: name for name in ("decoding", "gate_models", "service")} | {
    "astargate_client": "clients/python/src/astargate_client"
}
"""Every package that ships, and its folder."""
WINDOW = 6
"""Lines that must be equal for a passage to count as repeated."""
SHOWN = 10
"""Lines of each list."""
LIMITS = {"modules in one folder": 12, "lines of one function": 60, "parameters of one function": 8}

Ranked = list[tuple[str, int]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Tree:
    """The product's code as it stands in one folder."""

    root: Path

    @cached_property
    def files(self) -> list[Path]:
        """Modules without generated ones, and without the files that only say what a package holds."""
        paths = [path for folder in PACKAGES.values() for path in (self.root / folder).rglob("*.py")]
        return sorted(path for path in paths if path.parent.name != "wire" and path.name != "__init__.py")

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @cached_property
    def folders(self) -> Ranked:
        """Modules in each folder, the fullest first."""
        return ranked(Counter(self.name(path.parent) for path in self.files))

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function with its place."""
        return [
            (f"{self.name(path)}: {node.name}", node)
            for path in self.files
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, Function)
        ]

    @cached_property
    def longest_functions(self) -> Ranked:
        return ranked({place: (node.end_lineno or node.lineno) - node.lineno + 1 for place, node in self.functions})

    @cached_property
    def widest_signatures(self) -> Ranked:
        return ranked({place: parameters(node) for place, node in self.functions})

    @cached_property
    def repeated(self) -> Ranked:
        """Files by how many of their lines stand word for word somewhere else too."""
        return ranked(Counter(place for places in repeated_lines(self) for place, _ in places))

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """Every module with the modules of the product that it imports, those for type checking among them."""
        for folder in PACKAGES.values():
            sys.path.insert(0, str((self.root / folder).parent))
        graph = grimp.build_graph(*PACKAGES, cache_dir=None)
        del sys.path[: len(PACKAGES)]
        return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}

    @cached_property
    def floors(self) -> Ranked:
        """The longest chain of imports inside each package."""
        return ranked({package: floors(inside(self.imports, package)) for package in PACKAGES})

    @cached_property
    def floors_of_folders(self) -> Ranked:
        """The longest chain of imports among the modules that stand side by side in one folder."""
        folders = defaultdict(list)
        for module in self.imports:
            folders[module.rpartition(".")[0]].append(module)
        return ranked({folder or "top": floors(among(self.imports, set(group))) for folder, group in folders.items()})

    @cached_property
    def circles(self) -> Ranked:
        """Modules that import each other, directly or not."""
        return ranked({", ".join(circle): len(circle) for circle in circles(self.imports)})

    @cached_property
    def circles_of_folders(self) -> Ranked:
        """Folders that import each other. A package's own file is no part: it gathers what stands below."""
        packages = {module.rpartition(".")[0] for module in self.imports}
        graph: dict[str, set[str]] = defaultdict(set)
        for module, imported in self.imports.items():
            if module in packages:
                continue
            for other in imported - packages:
                here, there = module.rpartition(".")[0], other.rpartition(".")[0]
                graph[here] |= {there} - {here}
                graph.setdefault(there, set())
        return ranked({", ".join(circle): len(circle) for circle in circles(graph)})


def ranked(counts: Mapping[str, int]) -> Ranked:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def parameters(function: Function) -> int:
    """Parameters of a signature, without `self`."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len([one for one in every if one.arg not in {"self", "cls"}]) + bool(given.vararg) + bool(given.kwarg)


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that say something: no blank ones, comments, lone brackets or imports."""
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if len(content) > 2 and not content.startswith(("#", '"""', "import ", "from ")):
            yield number, content


def repeated_lines(tree: Tree) -> Iterator[set[tuple[str, int]]]:
    """For each file the (file, line) that lie in a passage which stands elsewhere too."""
    windows: dict[tuple[str, ...], list[list[tuple[str, int]]]] = defaultdict(list)
    for path in tree.files:
        lines = list(code_lines(path.read_text(encoding="utf-8")))
        for start in range(len(lines) - WINDOW + 1):
            passage = lines[start : start + WINDOW]
            windows[tuple(line for _, line in passage)].append([(tree.name(path), number) for number, _ in passage])
    repeated: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for places in windows.values():
        if len(places) > 1:
            for place in places:
                repeated[place[0][0]].update(place)
    yield from repeated.values()


def inside(imports: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    return among(imports, {module for module in imports if module == package or module.startswith(f"{package}.")})


def among(imports: Mapping[str, set[str]], modules: set[str]) -> dict[str, set[str]]:
    return {module: imports[module] & modules for module in modules}


def components(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Nodes that reach each other, groups without successors first (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            cut = stack.index(node)
            groups.append(sorted(stack[cut:]))
            del stack[cut:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    return [group for group in components(graph) if len(group) > 1]


def floors(graph: Mapping[str, set[str]]) -> int:
    """Length of the longest chain; modules of a circle stand on one floor."""
    height: dict[str, int] = {}
    for group in components(graph):
        below = {other for node in group for other in graph[node]} - set(group)
        height |= dict.fromkeys(group, 1 + max((height[other] for other in below), default=0))
    return max(height.values(), default=0)


def over(entries: Ranked, limit: int) -> str:
    return str(sum(number > limit for _, number in entries))


def summary(tree: Tree) -> dict[str, str]:
    """The figures of a tree, one a line."""
    folders, lengths, widths = LIMITS.values()
    return {
        "modules": str(len(tree.files)),
        "folders": str(len(tree.folders)),
        "most modules in one folder": str(tree.folders[0][1]),
        f"folders of more than {folders} modules": over(tree.folders, folders),
        "floors of the import graph inside a package, at most": str(tree.floors[0][1]),
        "floors among the modules of one folder, at most": str(tree.floors_of_folders[0][1]),
        "circles of modules": str(len(tree.circles)),
        "circles of folders": str(len(tree.circles_of_folders)),
        f"lines in passages of {WINDOW} lines or more that stand twice": str(sum(n for _, n in tree.repeated)),
        "files with such passages": str(len(tree.repeated)),
        "lines of the longest function": str(tree.longest_functions[0][1]),
        f"functions of more than {lengths} lines": over(tree.longest_functions, lengths),
        "parameters of the widest signature": str(tree.widest_signatures[0][1]),
        f"signatures of more than {widths} parameters": over(tree.widest_signatures, widths),
    }


LISTS = {
    "Modules in a folder": "folders",
    "Floors of a package's import graph": "floors",
    "Floors among the modules of one folder": "floors_of_folders",
    "Circles of modules": "circles",
    "Circles of folders": "circles_of_folders",
    "Lines that stand elsewhere too": "repeated",
    "Longest functions, in lines": "longest_functions",
    "Widest signatures, in parameters": "widest_signatures",
}


PREFACE = f"""# How the code is laid out

Printed by `python -m tests.structure`, with `--rev` for another commit beside the present one. A circle is a group of
modules, or of folders, that import each other; imports that only type checkers follow count. A passage is {WINDOW}
lines of code that stand word for word in two places. Generated modules are left out, and those that name a package."""


def report(trees: Mapping[str, Tree]) -> str:
    """The page: a summary, then the first entries of every list."""
    figures = [summary(tree) for tree in trees.values()]
    lists = {title: [getattr(tree, name)[:SHOWN] for tree in trees.values()] for title, name in LISTS.items()}
    # Imported last: a module that is loaded already would be measured in place of another commit's.
    from gate_models.offline.runs.markdown import table

    parts = [
        PREFACE,
        table(["measure", *trees], [[measure, *(one[measure] for one in figures)] for measure in figures[0]]),
    ]
    for title, columns in lists.items():
        parts.append(f"## {title}\n\n{table(list(trees), side_by_side(columns)) if any(columns) else 'None.'}")
    return "\n\n".join(parts)


def side_by_side(columns: Sequence[Ranked]) -> Iterator[list[str]]:
    for row in range(max(map(len, columns))):
        yield ["{1}: {0}".format(*column[row]) if row < len(column) else "" for column in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rev", help="a commit that is measured too")
    rev = parser.parse_args().rev
    if rev is None:
        print(report({"now": Tree(ROOT)}))
        return
    with tempfile.TemporaryDirectory() as scratch:
        worktree = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*worktree, "add", "--quiet", "--detach", f"{scratch}/tree", rev], check=True)
        try:
            print(report({f"`{rev}`": Tree(Path(scratch) / "tree"), "now": Tree(ROOT)}))
        finally:
            subprocess.run([*worktree, "remove", "--force", f"{scratch}/tree"], check=True)


if __name__ == "__main__":
    main()
