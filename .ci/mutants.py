"""Mutation testing of what certificates rest on: a seeded share of mutmut's mutants of polar/ and of ALONE.

    python .ci/mutants.py --share 0.1 --seed 0 --out benchmarks/results/mutants.json

A mutant is the code with one small change, and is killed if a test of its module then fails. All mutants are in one
copy of the sources, and a forked process with everything imported chooses one; each meets the few tests of its module,
so what only the rest of the suite would notice counts as not noticed. Names of survivors are in the report.
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
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
    "polar/base": [f"{CONTRACT}::test_oracle[Faces]", f"{CONTRACT}::test_oracle[Pooled]", "polar/test_pooled.py"],
    "polar/exact/faces": [
        "polar/exact/test_planes.py",
        "polar/exact/test_faces_costs.py",
        f"{CONTRACT}::test_oracle[Faces]",
    ],
    "polar/products/cells": ["polar/products/test_majorant.py", "polar/products/test_proof.py"],
    "polar/products/clusters": [f"{CONTRACT}::test_oracle[ProductBound of clusters]"],
    "polar/products/coordinates": ["polar/products/test_majorant.py"],
    "polar/products/multipliers": ["polar/products/test_majorant.py", "polar/products/test_proof.py"],
    "polar/products/oracle": ["polar/products/test_proof.py", f"{CONTRACT}::test_oracle[ProductBound]"],
    "polar/products/soft_bound": ["polar/products/test_proof.py", "training/relu/test_product_bound.py"],
    "polar/products/witness": ["polar/products/test_proof.py", "training/relu/test_product_bound.py"],
    "polar/relaxations/diagonal": [
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
    "polar/subnetworks/base": [f"{CONTRACT}::test_oracle[RelaxedBound]", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/bound": [f"{CONTRACT}::test_oracle[RelaxedBound]", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/one_sign": [f"{CONTRACT}::test_oracle[ExactParallel]", "polar/subnetworks/test_pricing.py"],
    "polar/subnetworks/outputs": [f"{CONTRACT}::test_oracle[AllOutputs]", "polar/subnetworks/test_bounds.py"],
    "polar/subnetworks/pricing": [f"{CONTRACT}::test_oracle[ExactParallel]"],
    "polar/subnetworks/search": [f"{CONTRACT}::test_oracle[ParallelSearch]", "polar/subnetworks/test_bounds.py"],
    "problems/certificate": ["problems/test_best_scale.py"],
}


def mutated(path: Path, copy: Path) -> list[str]:
    """Write all mutants of a file into the copy; their names."""
    source = str(path.relative_to(ROOT))
    made = mutate_file_contents(source, path.read_text(), None, None)
    (copy / path.relative_to(ROOT / "src")).write_text(made.code)
    return [get_mutant_name(Path(source), name) for name in made.mutant_names]


def tests_of(module: str) -> list[str]:
    folder, _, name = module.rpartition("/")
    own = f"{folder}/test_{name}.py"
    return [f"tests/{path}" for path in ([own] if (ROOT / "tests" / own).exists() else []) + MORE.get(module, [])]


def run(name: str, tests: list[str], seconds: float) -> int:
    """The exit code of pytest in a fork in which the mutant is the code; 124 if it takes too long."""
    pid = os.fork()
    if not pid:
        os.setsid()
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        set_mutant_under_test(name)
        try:
            os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
        except BaseException:  # a mutant may raise anything, anywhere
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def survivors(module: str, names: list[str], seconds: float) -> list[str]:
    tests = tests_of(module)
    if not tests:
        return names
    if (code := run("", tests, 600)) != 0:
        sys.exit(f"the tests of {module} fail as the code is (exit code {code}); mend them first.")
    return [name for name in names if run(name, tests, seconds) == 0]


def report(tried: dict[str, int], left: dict[str, list[str]], given: argparse.Namespace) -> dict[str, Any]:
    total = sum(tried.values())
    rate = 1 - sum(map(len, left.values())) / total
    return {
        "share": given.share,
        "seed": given.seed,
        "mutants": total,
        "killed": total - sum(map(len, left.values())),
        "rate": rate,
        "standard_error": math.sqrt(rate * (1 - rate) / total),
        "files": {module: {"mutants": tried[module], "killed": tried[module] - len(left[module])} for module in tried},
        "survivors": left,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=90.0, help="after which a mutant counts as killed")
    parser.add_argument("--only", nargs="*", default=[], help="modules, such as problems/certificate polar/exact/faces")
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
        names = {module: mutated(path, copy) for module, path in modules.items() if module in chosen}
        sys.path.insert(0, str(copy))
        story = _judged({module: every for module, every in names.items() if every}, given)
    given.out.write_text(json.dumps(story, indent=1) + "\n")
    print(f"{story['killed']} of {story['mutants']} mutants killed, {story['rate']:.1%}")


def _judged(names: dict[str, list[str]], given: argparse.Namespace) -> dict[str, Any]:
    rng, tried, left = random.Random(given.seed), dict[str, int](), dict[str, list[str]]()
    torch.set_num_threads(1)
    set_mutant_under_test("")
    tests = {test for module in names for test in tests_of(module)}
    pytest.main(["-qq", "--collect-only", "-p", "no:cacheprovider", *sorted(tests)])  # imports it all
    for module, every in names.items():
        chosen = rng.sample(every, min(len(every), max(3, round(given.share * len(every)))))
        left[module] = survivors(module, chosen, given.seconds)
        tried[module] = len(chosen)
        print(f"{module}: {len(chosen) - len(left[module])} of {len(chosen)} killed", *left[module], flush=True)
    return report(tried, left, given)


if __name__ == "__main__":
    main()
