"""The gated group problems on which other libraries were timed, and how long they take here."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bidual.gauges import GAUGES
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Record
from bidual.solvers.plan import solve_auto

GAPS = (1e-2, 1e-4, 1e-6)
_TEACHER, _OUTPUTS, _NOISE = 10, 5, 0.1


@dataclass(frozen=True)
class Case:
    """One problem: n samples, d features, gates, c outputs, penalty, and beta as a fraction of beta_max."""

    n: int
    d: int
    patterns: int
    fraction: float
    c: int = 1
    penalty: str = "per_output"


@dataclass(frozen=True)
class Outcome:
    """How a case went: seconds to each of ``GAPS`` (None if not reached), and where it ended.

    ``objective`` is the optimum found, divided by n c; ``known`` is the optimum in the literature, where there is one.
    """

    case: Case
    seconds: tuple[float | None, ...]
    gap: float
    objective: float
    known: float | None
    solver: str


_SIZES = ((500, 20, 100), (2000, 50, 500))
_KINDS = ((1, "per_output"), (5, "per_output"), (5, "nuclear"))
SUITE = tuple(Case(*size, fraction, *kind) for size in _SIZES for kind in _KINDS for fraction in (0.1, 0.01))
QUICK = tuple(case for case in SUITE if case.n == _SIZES[0][0])
KNOWN_OPTIMA = {
    Case(500, 20, 100, 0.1): 0.1562969924,
    Case(500, 20, 100, 0.01): 0.0289342568,
    Case(2000, 50, 500, 0.1): 0.1957952657,
    Case(2000, 50, 500, 0.01): 0.0329776913,
}


def make_data(n: int, d: int, patterns: int, seed: int = 0) -> tuple[NDArray[np.float64], ...]:
    """Samples X, the outputs Y of a noisy ReLU teacher in units of their deviation, and gates G."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    W = rng.standard_normal((d, _TEACHER)) / np.sqrt(d)
    V = rng.standard_normal((_TEACHER, _OUTPUTS)) / np.sqrt(_TEACHER)
    Y = np.maximum(X @ W, 0) @ V + _NOISE * rng.standard_normal((n, _OUTPUTS))
    return X, Y / Y.std(axis=0), rng.standard_normal((d, patterns))


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Squared loss without biases; the first c outputs of the teacher."""
    X, Y, G = (torch.tensor(array) for array in make_data(case.n, case.d, case.patterns, seed))
    operator = GatedOperator(X, (X @ G > 0).T.contiguous(), case.c)
    datafit = Datafit(Squared(), Y[:, : case.c].contiguous())
    problem = Problem(operator, datafit, GAUGES[case.penalty](), 1.0)
    return problem.with_beta(case.fraction * problem.beta_max)


def run_case(case: Case, tol: float = min(GAPS), max_time: float | None = None) -> Outcome:
    """Solve a case with the automatic choice of solvers; a gap that is not reached stays None."""
    problem = make_problem(case)
    records: list[tuple[float, Record]] = []
    began = time.perf_counter()
    solution = solve_auto(
        problem,
        Limits(tol, max_time=max_time),
        callback=lambda record: records.append((time.perf_counter() - began, record)),
    )
    reached = [next((seconds for seconds, record in records if record.relative_gap <= gap), None) for gap in GAPS]
    objective = solution.certificate.primal / (case.n * case.c)
    gap = solution.certificate.relative_gap
    return Outcome(case, tuple(reached), gap, objective, KNOWN_OPTIMA.get(case), solution.solver)
