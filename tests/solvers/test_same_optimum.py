"""Every way to train, in both precisions, with and without denormals, on one and two threads: one certified optimum.

And bit for bit the same for the same number of threads: twice in a process, and in another process.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product

import pytest
import torch

from bidual.operators import GatedOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from helpers.numeric_cases import CASES, LOOSE, TOL, Found, gated
from helpers.places import HELPERS

DTYPES = {"float32": torch.float32, "float64": torch.float64}
ALL = list(product(DTYPES, (False, True), (1, 2)))
SOME = [("float64", True, 1), ("float32", True, 2)]  # each of the three once; all together by `make test-slow`
SINGLE = 1e-5  # what rounding the data to single precision may move the optimum by


@contextmanager
def machine(flush: bool, threads: int) -> Iterator[None]:
    """Denormals as zeros or not, and a number of threads; as before afterwards."""
    before = torch.get_num_threads()
    if not torch.set_flush_denormal(flush) and flush:
        pytest.skip("this processor cannot flush denormals")
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


@cache
def found(name: str, kind: str = "float64", flush: bool = False, threads: int = 1) -> Found:
    with machine(flush, threads):
        return CASES[name](DTYPES[kind])


def agrees(name: str, conditions: list[tuple[str, bool, int]]) -> bool:
    """Whether all brackets hold one optimum, and are as narrow as asked for."""
    tol = LOOSE.get(name.split()[-1], TOL)
    first = found(name).certificate
    for kind, flush, threads in conditions:
        one = found(name, kind, flush, threads).certificate
        slack = SINGLE if kind == "float32" else 1e-9
        assert one.relative_gap <= tol
        assert one.primal == pytest.approx(first.primal, rel=2 * tol)
        assert one.dual <= first.primal * (1 + slack)
        assert first.dual <= one.primal * (1 + slack)
    return True


@pytest.mark.parametrize("name", CASES)
def test_one_optimum(name: str) -> None:
    assert agrees(name, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_optimum_in_every_way(name: str) -> None:
    assert agrees(name, ALL)


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_twice(name: str) -> None:
    with machine(False, 1):
        assert CASES[name](torch.float64).digest == found(name).digest
    with machine(True, 2):
        assert CASES[name](torch.float32).digest == found(name, "float32", True, 2).digest


def digests_of_a_process(threads: int) -> dict[str, str]:
    script = HELPERS / "numeric_cases.py"
    done = subprocess.run([sys.executable, script, str(threads)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_bits_in_another_process(threads: int) -> None:
    here = {f"{name} {kind}": found(name, kind, False, threads).digest for name in CASES for kind in DTYPES}
    assert digests_of_a_process(threads) == here


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("size", [1e-310, 1e-160])
def test_denormal_data(flush: bool, size: float) -> None:
    """A feature of denormal numbers, or one whose squares are denormal, is no feature; its bounds hold."""
    problem = gated("nuclear")
    operator = problem.operator
    assert isinstance(operator, GatedOperator)
    X = torch.cat([operator.X, size * torch.ones(len(operator.X), 1, dtype=torch.float64)], 1)
    wider = Problem(GatedOperator(X, operator.patterns, 2), problem.datafit, problem.gauge, problem.beta)
    plain = solve_auto(problem, Limits(1e-6)).certificate
    with machine(flush, 1):
        one = solve_auto(wider, Limits(TOL)).certificate
    assert one.relative_gap <= TOL
    assert one.dual <= plain.primal * (1 + 1e-9)
    assert plain.dual <= one.primal * (1 + 1e-9)
