"""Measures the layout of the package: rooms, lines, import cycles, training loops, result types, files passed by a fit.

    python .ci/house.py [TREE ...] [--python PATH] [--json]

Prints one column per tree. Several trees give a table of before and after. Each row says what it counts:

- entries in the root: files and folders of ``src/bidual``.
- files, lines: of ``*.py``; "without papers" leaves ``papers/`` out, in the flat layout ``experiments/`` and
  ``reproduction/`` with their command.
- modules in import cycles: strongly connected components of the import graph, imports inside functions included,
  imports for type checkers only left out.
- loops that train: the functions of LOOPS that exist and loop.
- result types: the classes of RESULTS that exist.
- files passed by one fit: distinct files with a function that runs during ``fit`` on a small table, in the second fit
  of a process, so that imports do not count. Leaves (LEAVES: arithmetic, runtime, losses, gauges, patterns, operators,
  torch modules, the algorithms that the driver steps) are left out: what remains is the way of control.
- files on the way down of one fit: the most of these files that are on the stack at the same time.
- lines of tests: of ``tests/**/*.py``.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAPERS = re.compile(r"papers/|experiments/|reproduction/|cli/reproduce\.py")
LOOPS = {  # files of the flat layout and of the rooms, and the function that loops
    r"driver\.py": "solve",
    r"solvers/driver\.py": "turn",  # ``run`` beside it goes over stages; ``Progress`` keeps point, dual and history
    r"auto\.py": "_run",
    r"(training/relu/)?column_generation\.py": "until",
    r"(training/relu/)?cutting_planes?\.py": "until",
    r"(training/relu/)?frank_wolfe\.py": "run",
    r"(solvers/)?factored/training\.py": "_descend",
    r"(training/)?copositive/training\.py": "_polished",
    r"(training/)?layerwise/(training|growth|trainer)\.py": "run",
}
RESULTS = ("Solution", "Training", "FactoredSolution", "FrankWolfeRun")
LEAVES = re.compile(
    r"(numerics|runtime|losses|gauges|patterns|operators|patches|networks|architectures/modules|solvers/conic)/|"
    r"solvers/(?!driver|plan)\w+\.py|solvers/factored/|estimators/progress\.py|types\.py|"
    # the same of the flat layout
    r"(rounding|gram|spectral_bounds|norms|cholesky|nonnegative|rootfinding|anderson|ties|pruning|memory|threads|"
    r"breakdown|abilities|datafit|progress|clarabel_answer|second_order)\.py"
)
FIT = """
import json, os, sys, warnings
import numpy as np
from bidual import ConvexMLPRegressor
warnings.simplefilter("ignore")
root, seen, stacks = os.path.join(sys.argv[1], "bidual") + os.sep, set(), set()
rng = np.random.default_rng(0)
X = rng.standard_normal((int(sys.argv[3]), int(sys.argv[4])))
y = np.maximum(X[:, 0], 0) + 0.1 * rng.standard_normal(len(X))
def passed(frame, event, argument):
    if event != "call" or not frame.f_code.co_filename.startswith(root) or frame.f_code.co_name == "<module>":
        return
    seen.add(frame.f_code.co_filename)
    files = dict()
    while frame is not None:
        files.setdefault(frame.f_code.co_filename)
        frame = frame.f_back
    stacks.add(tuple(file for file in files if file.startswith(root))[::-1])
ConvexMLPRegressor(activation=sys.argv[2], beta=0.1).fit(X, y)
sys.setprofile(passed)
ConvexMLPRegressor(activation=sys.argv[2], beta=0.1).fit(X, y)
sys.setprofile(None)
def short(files):
    return [file[len(root):].replace(os.sep, "/") for file in files]
print(json.dumps([short(sorted(seen)), *map(short, stacks)]))
"""
TABLES = {"relu": (12, 2), "gated_relu": (30, 4)}  # rows and columns of the small tables


def modules(source: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = ("bidual", *path.relative_to(source).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(source: Path) -> dict[str, set[str]]:
    """Which module imports which, wherever the statement stands, but not those that only type checkers see."""
    found, names = {}, modules(source)
    for name, path in names.items():
        targets = {target for node in _statements(ast.parse(path.read_text())) for target in _targets(node, names)}
        found[name] = targets - {name}
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _statements(node)


def _targets(node: ast.AST, names: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bidual":
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in names else node.module
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "bidual")


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not."""
    graph = {name: {target for target in targets if target in graph} for name, targets in graph.items()}
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph[name]
    return seen


def loops(source: Path) -> list[str]:
    """The functions of LOOPS that exist and loop, as FILE:FUNCTION."""
    return [f"{name}:{node.name}" for name, node in _nodes(source) if _trains(name, node)]


def _trains(name: str, node: ast.AST) -> bool:
    looping = isinstance(node, ast.FunctionDef) and any(isinstance(n, ast.For | ast.While) for n in ast.walk(node))
    return looping and any(re.fullmatch(file, name) and node.name == function for file, function in LOOPS.items())


def results(source: Path) -> list[str]:
    """The classes of RESULTS that exist, as FILE:CLASS."""
    return [f"{name}:{n.name}" for name, n in _nodes(source) if isinstance(n, ast.ClassDef) and n.name in RESULTS]


def _nodes(source: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if not PAPERS.match(name):
            yield from ((name, node) for node in ast.walk(ast.parse(path.read_text())))


def passed_by_fit(tree: Path, activation: str, python: str) -> tuple[list[str], list[str]]:
    """The files that control passes in one fit, without leaves, and the most that are on the stack together."""
    rows, columns = TABLES[activation]
    source = str((tree / "src").resolve())
    command = [python, "-c", f"import sys; sys.path.insert(0, sys.argv[1])\n{FIT}", source]
    done = subprocess.run([*command, activation, str(rows), str(columns)], capture_output=True, text=True, check=True)
    passed, *stacks = (
        [name for name in names if not LEAVES.match(name)] for names in json.loads(done.stdout.splitlines()[-1])
    )
    return passed, max(stacks, key=len)


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def measure(tree: Path, python: str) -> dict[str, Any]:
    source = tree / "src" / "bidual"
    files = sorted(source.rglob("*.py"))
    core = [path for path in files if not PAPERS.match(path.relative_to(source).as_posix())]
    entries = [path for path in source.iterdir() if path.name != "__pycache__"]
    found = {
        "entries in the root": len(entries),
        "files": len(files),
        "files without papers": len(core),
        "lines": lines(files),
        "lines without papers": lines(core),
        "modules in import cycles": [name for group in cycles(imports(source)) for name in group],
        "loops that train": loops(source),
        "result types": results(source),
    }
    for name in TABLES:
        passed, way = passed_by_fit(tree, name, python)
        found |= {f"files passed by one fit, {name}": passed, f"files on the way down of one fit, {name}": way}
    return found | {"lines of tests": lines(sorted((tree / "tests").rglob("*.py")))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[Path(__file__).parents[1]])
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the fits")
    parser.add_argument("--json", action="store_true", help="print JSON, with the names that were counted")
    given = parser.parse_args()
    found = {str(tree): measure(tree, given.python) for tree in given.trees}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print("| what |" + "".join(f" {tree} |" for tree in found))
    print("|---|" + "---|" * len(found))
    for what in next(iter(found.values())):
        counts = (column[what] for column in found.values())
        print(f"| {what} |" + "".join(f" {len(n) if isinstance(n, list) else f'{n:,}'} |" for n in counts))


if __name__ == "__main__":
    main()
