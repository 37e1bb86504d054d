"""Factored training under the one driver: programs, limits, continued runs, and the factors of any solution."""

import pytest
import torch

from bidual.papers.methods.optimality import optimality_report
from bidual.problems.solution import Limits, Record, Status
from bidual.solvers import BurerMonteiro
from bidual.solvers.driver import solve
from bidual.solvers.factored import FactoredProgram, factored_point, train
from bidual.solvers.plan import solve_auto
from helpers.factored_cases import gated, judged

NEWTON = BurerMonteiro(method="variable_projection")


def test_a_program_is_solved_as_its_problem_is() -> None:
    problem, optimum = judged()
    for solution in (solve(problem, NEWTON, Limits(1e-7)), solve(FactoredProgram(problem, 1), NEWTON, Limits(1e-7))):
        assert solution.status is Status.CERTIFIED
        assert solution.problem is problem
        assert solution.certificate.primal == pytest.approx(optimum, rel=1e-6)
        assert solution.solver == "burer_monteiro"


def test_a_run_is_continued_from_its_factors() -> None:
    program = FactoredProgram(gated(), 1)
    short = solve(program, NEWTON, Limits(1e-8, 10))
    assert short.status is Status.MAX_STEPS
    whole = solve(program, NEWTON, Limits(1e-8), start=short)
    assert whole.status is Status.CERTIFIED
    assert whole.history[: len(short.history)] == short.history
    assert factored_point(whole).value < factored_point(short).value
    assert whole.n_steps > 10


def test_without_a_step_the_start_is_returned() -> None:
    program, seen = FactoredProgram(gated(), 2), list[Record]()
    solution = train(program, max_steps=0, callback=seen.append)
    point = factored_point(solution)
    assert (solution.status, solution.n_steps) == (Status.MAX_STEPS, 0)
    assert tuple(seen) == solution.history
    torch.testing.assert_close(solution.Z, program.product(point.factors))
    torch.testing.assert_close(point.factors.U, program.start(torch.Generator().manual_seed(0)).U)


def test_the_factors_of_a_convex_solution_are_its_cheapest() -> None:
    problem, _ = judged()
    solution = solve_auto(problem, Limits(1e-8))
    point = factored_point(solution)
    torch.testing.assert_close(point.program.product(point.factors), solution.Z)
    assert point.value == pytest.approx(solution.certificate.primal, rel=1e-9)
    assert optimality_report(point.program, point.factors).certified_bound < 1e-7
