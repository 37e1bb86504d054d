"""Mutation testing of what certificates rest on: a seeded share of mutmut's mutants of polar/ and of ALONE.

    python .ci/mutants.py --share 0.1 --seed 0 --out benchmarks/results/mutants.json

A mutant is the code with one small change, and is killed if a test of its module then fails. All mutants are in one
copy of the sources, and a forked process with everything imported and collected chooses one. It meets those tests of
its module that reach its function and are no longer than ``--longest``, quick ones first, so what only the rest of the
suite would notice counts as not noticed. Names of survivors are printed, and are in the report.

    python .ci/mutants.py --share 0.1 --clean build/clean.json --resume build/seen.json

keeps what a clean run measured, and what became of mutants, for the next run; delete them when sources change.
"""

import argparse
import ast
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol
from mutmut.mutation import trampoline
from mutmut.mutation.file_mutation import get_mutant_name, mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test

ROOT = Path(__file__).parents[1]
CONTRACT = "contracts/test_oracles.py"
ALONE = (  # besides polar/
    "numerics/forms",
    "problems/certificate",
    "patterns/exact_arrangement",
    "papers/methods/norm_oracles",
)
MORE = {  # by module: tests besides test_MODULE.py in the folder that mirrors its own
    "numerics/forms": ["polar/exact/test_planes.py", "polar/exact/test_faces.py"],
    "papers/methods/norm_oracles": ["papers/methods/test_norm_corners.py", f"{CONTRACT}::test_oracle[NormFaces l2 l1]"],
    "patterns/exact_arrangement": ["polar/subnetworks/test_first_layer.py", "papers/methods/test_norm_corners.py"],
    "polar/base": [
        f"{CONTRACT}::test_oracle[Faces]",
        f"{CONTRACT}::test_oracle[Pooled]",
        "polar/test_pooled.py",
        "polar/test_repeated.py",
    ],
    "polar/exact/faces": [
        "polar/exact/test_planes.py",
        "polar/exact/test_faces_costs.py",
        f"{CONTRACT}::test_oracle[Faces]",
    ],
    "polar/products/cells": ["polar/products/test_majorant.py", "polar/products/test_proof.py"],
    "polar/products/clusters": [f"{CONTRACT}::test_oracle[ProductBound of clusters]"],
    "polar/products/coordinates": ["polar/products/test_majorant.py"],
    "polar/products/descent": ["polar/products/test_soft_bound.py"],
    "polar/products/multipliers": ["polar/products/test_majorant.py", "polar/products/test_proof.py"],
    "polar/products/oracle": [
        "polar/products/test_proof.py",
        "polar/products/test_soft_bound.py",
        f"{CONTRACT}::test_oracle[ProductBound]",
    ],
    "polar/products/soft_bound": ["polar/products/test_proof.py", "training/relu/test_product_bound.py"],
    "polar/products/witness": ["polar/products/test_proof.py", "training/relu/test_product_bound.py"],
    "polar/relaxations/diagonal": [
        "polar/relaxations/test_diagonal_rounding.py",
        "polar/relaxations/test_relaxations.py",
        f"{CONTRACT}::test_oracle[DiagonalBound without sums]",
        f"{CONTRACT}::test_oracle[DiagonalBound]",
    ],
    "polar/relaxations/moments": [
        "polar/relaxations/test_relaxations.py",
        f"{CONTRACT}::test_oracle[SemidefiniteBound]",
        "papers/methods/test_branch_and_bound.py",
    ],
    "polar/relaxations/reduction": [f"{CONTRACT}::test_oracle[DiagonalBound without sums]"],
    "polar/relaxations/sign_regions": ["papers/methods/test_branch_and_bound.py"],
    "polar/search": [
        f"{CONTRACT}::test_oracle[LocalSearch]",
        f"{CONTRACT}::test_oracle[RidgeSearch]",
        "polar/sphere/test_oracle.py",
    ],
    "polar/sphere/caps": ["polar/sphere/test_simplex_bounds.py"],
    "polar/sphere/oracle": [f"{CONTRACT}::test_oracle[Sphere]"],
    "polar/sphere/simplex_bounds": [f"{CONTRACT}::test_oracle[Sphere]", "polar/sphere/test_oracle.py"],
    "polar/sphere/simplices": ["polar/sphere/test_oracle.py"],
    "polar/subnetworks/base": ["polar/subnetworks/test_search.py", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/bound": [f"{CONTRACT}::test_oracle[RelaxedBound]", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/one_sign": [f"{CONTRACT}::test_oracle[ExactParallel]", "polar/subnetworks/test_pricing.py"],
    "polar/subnetworks/outputs": [f"{CONTRACT}::test_oracle[AllOutputs]", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/pricing": ["polar/subnetworks/test_one_sign.py", f"{CONTRACT}::test_oracle[ExactParallel]"],
    "polar/subnetworks/search": [f"{CONTRACT}::test_oracle[ParallelSearch]", "polar/subnetworks/test_bounds.py"],
    "problems/certificate": ["problems/test_best_scale.py"],
}


def drawn(path: Path, copy: Path, given: argparse.Namespace, rng: random.Random) -> list[str]:
    """Write a share of the mutants of a file into the copy; their names."""
    source = str(path.relative_to(ROOT))
    made = mutate_file_contents(source, path.read_text(), None, None)
    every = list(made.mutant_names)
    chosen = rng.sample(every, min(len(every), max(3, round(given.share * len(every)))))
    (copy / path.relative_to(ROOT / "src")).write_text(without_others(made.code, set(chosen)))
    return [get_mutant_name(Path(source), name) for name in chosen]


def without_others(code: str, chosen: set[str]) -> str:
    """The code without mutants that were not chosen: thousands of functions would take minutes to import."""
    tree = ast.parse(code)
    bodies = [tree.body, *(part.body for part in tree.body if isinstance(part, ast.ClassDef))]
    for body in bodies:
        body[:] = [part for part in body if (name := _mutant(part)) is None or name in chosen]
    return ast.unparse(tree)


def _mutant(part: ast.stmt) -> str | None:
    """The name of the mutant that a statement defines or lists, if any."""
    name: object = getattr(part, "name", None)
    if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript):
        name = getattr(part.targets[0].slice, "value", None)
    return name if isinstance(name, str) and name.rpartition("__mutmut_")[2].isdigit() else None


def tests_of(module: str) -> list[str]:
    folder, _, name = module.rpartition("/")
    own = f"{folder}/test_{name}.py"
    return [f"tests/{path}" for path in ([own] if (ROOT / "tests" / own).exists() else []) + MORE.get(module, [])]


def in_fork(act: Callable[[], int], seconds: float) -> int:
    """The exit code of a function that runs in a silent fork; 124 if it takes too long."""
    pid = os.fork()
    if not pid:
        os.setsid()
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            os._exit(act())
        except BaseException:  # a mutant may raise anything, anywhere
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def passes(items: list[pytest.Item], after: Callable[[pytest.Item], None] = lambda item: None) -> bool:
    """Whether all tests pass, up to the first that does not."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        if any(made.failed for made in runtestprotocol(item, nextitem=following, log=False)):
            return False
        after(item)
    return True


class Clean(dict[str, tuple[float, list[str]]]):
    """By test: how long it takes, and which functions that have mutants it reaches, as the code is."""

    def measure(self, items: list[pytest.Item], there: Path) -> None:
        """Run the tests that are not known yet, in a fork that writes down what it sees."""
        items = [item for item in items if item.nodeid not in self]
        if items and in_fork(lambda: self._watched(items, there), 3600) != 0:
            sys.exit(f"a test of {items[0].path} or after it fails as the code is; mend it first.")
        self.update(json.loads(there.read_text()) if items else {})

    def _watched(self, items: list[pytest.Item], there: Path) -> int:
        reached, made, began = set[str](), dict[str, tuple[float, list[str]]](), time.monotonic()

        def noted(item: pytest.Item) -> None:
            nonlocal began
            made[item.nodeid] = (time.monotonic() - began, sorted(reached))
            reached.clear()
            began = time.monotonic()

        trampoline.record_trampoline_hit = lambda name, caller=None: reached.add(name)
        set_mutant_under_test("stats")
        passed = passes(items, noted)
        there.write_text(json.dumps(made))
        return 0 if passed else 1

    def chosen(self, items: list[pytest.Item], name: str, longest: float) -> list[pytest.Item]:
        """Tests that reach a mutant, quick ones first."""
        function = name.rpartition("__mutmut_")[0]
        reaching = (item for item in items if function in self[item.nodeid][1] and self[item.nodeid][0] <= longest)
        return sorted(reaching, key=lambda item: self[item.nodeid][0])


def survives(name: str, items: list[pytest.Item], seconds: float) -> bool:
    """Whether all tests pass with a mutant in place of the code, in a few times the seconds of a clean run."""

    def act() -> int:
        set_mutant_under_test(name)
        return 0 if passes(items) else 1

    return not items or in_fork(act, 10 + 5 * seconds) == 0


def report(tried: dict[str, int], left: dict[str, list[str]], given: argparse.Namespace) -> dict[str, Any]:
    total = sum(tried.values())
    rate = 1 - sum(map(len, left.values())) / total
    return {
        "share": given.share,
        "seed": given.seed,
        "longest": given.longest,
        "mutants": total,
        "killed": total - sum(map(len, left.values())),
        "rate": rate,
        "standard_error": math.sqrt(rate * (1 - rate) / total),
        "files": {module: {"mutants": tried[module], "killed": tried[module] - len(left[module])} for module in tried},
        "survivors": left,
    }


class Judge:
    """Pytest collects all tests once, and then this plugin runs them on mutants instead of running them once."""

    def __init__(self, names: dict[str, list[str]], folder: Path, given: argparse.Namespace) -> None:
        self.names, self.folder, self.given, self.clean = names, folder, given, Clean(_stored(given.clean))
        self.seen: dict[str, bool] = _stored(given.resume)
        self.tried, self.left = dict[str, int](), dict[str, list[str]]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for module, chosen in self.names.items():
            items = _items(module, session.items)
            self.clean.measure(items, self.folder / "clean.json")
            _store(self.given.clean, self.clean)
            self.left[module] = [name for name in chosen if self._survives(name, items)]
            self.tried[module] = len(chosen)
            print(f"{module}: {len(chosen) - len(self.left[module])} of {len(chosen)} killed", flush=True)
        return True

    def _survives(self, name: str, items: list[pytest.Item]) -> bool:
        if name not in self.seen:
            tests = self.clean.chosen(items, name, self.given.longest)
            self.seen[name] = survives(name, tests, sum(self.clean[item.nodeid][0] for item in tests))
            if self.seen[name]:
                print(f"  {name} survives {len(tests)} tests", flush=True)
            _store(self.given.resume, self.seen)
        return self.seen[name]


def _items(module: str, items: list[pytest.Item]) -> list[pytest.Item]:
    tests = tests_of(module)
    return [item for item in items if item.nodeid in tests or item.nodeid.partition("::")[0] in tests]


def _stored(path: Path | None) -> dict[str, Any]:
    return json.loads(path.read_text()) if path and path.exists() else {}


def _store(path: Path | None, what: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(what))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=10.0, help="seconds of the longest test that mutants meet")
    parser.add_argument("--only", nargs="*", default=[], help="modules, such as problems/certificate polar/exact/faces")
    parser.add_argument("--clean", type=Path, help="a file that keeps durations of tests and what they reach")
    parser.add_argument("--resume", type=Path, help="a file that keeps what became of mutants")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/mutants.json"))
    given = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        source = ROOT / "src/bidual"
        paths = [*(source / f"{module}.py" for module in ALONE), *sorted((source / "polar").rglob("*.py"))]
        modules = {path.relative_to(source).with_suffix("").as_posix(): path for path in paths}
        chosen = given.only or list(modules)
        rng = random.Random(given.seed)
        names = {module: drawn(path, copy, given, rng) for module, path in modules.items() if module in chosen}
        sys.path.insert(0, str(copy))
        judge = Judge({module: every for module, every in names.items() if every}, Path(folder), given)
        torch.set_num_threads(1)
        set_mutant_under_test("")
        tests = {test for module in judge.names for test in tests_of(module)}
        pytest.main(["-qq", "-s", "-p", "no:cacheprovider", *sorted(tests)], plugins=[judge])
    story = report(judge.tried, judge.left, given)
    given.out.write_text(json.dumps(story, indent=1) + "\n")
    print(f"{story['killed']} of {story['mutants']} mutants killed, {story['rate']:.1%}")


if __name__ == "__main__":
    main()
