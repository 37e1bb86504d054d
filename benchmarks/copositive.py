"""CP (19) on the spiral: the dual over the cones that bind, against the matrix-fractional form as a modelling language
sees it. Needs cvxpy, which the tests install."""

import argparse
import time

import cvxpy as cp
import numpy as np
import torch

from bidual import patterns
from bidual.io.datasets import make_spiral
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.patterns.cones import needed_rows
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.copositive import relax
from bidual.training.relu.column_generation import ColumnGeneration


def spiral(n: int, beta: float) -> ReluProblem:
    X, labels = make_spiral(n)
    Y = torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    return ReluProblem(torch.from_numpy(X), Datafit(Squared(), Y), beta)


def matrix_fractional(problem: ReluProblem, solver: str, **settings: float) -> float:
    """min 1/2 tr Y^T (I + 2 sum_p D_p X U_p X^T D_p)^-1 Y + beta^2 sum_p tr U_p, facets only (CP eq. 19)."""
    X, Y = problem.X.numpy(), problem.datafit.targets.numpy()
    active = patterns.enumerate(problem.X).active.numpy()
    needed = needed_rows(X, active, complete=True)
    S, price, limits = np.eye(len(X)), 0, []
    for D, facets in zip(active, needed, strict=True):
        U = cp.Variable((X.shape[1],) * 2, PSD=True)
        A, K = D[:, None] * X, np.where(D, 1.0, -1.0)[facets, None] * X[facets]
        S, price = S + 2 * A @ U @ A.T, price + cp.trace(U)
        limits.append(K @ U @ K.T >= 0)
    cost = 0.5 * cp.matrix_frac(Y, 0.5 * (S + S.T)) + problem.beta**2 * price
    return float(cp.Problem(cp.Minimize(cost), limits).solve(solver=solver, **settings))


def row(name: str, seconds: float, value: float, optimum: float) -> str:
    return f"| {name} | {seconds:.2f} | {value:.8g} | {value / optimum - 1:+.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--scs-steps", type=int, default=20_000, help="As in CP A.1.5; 0 leaves SCS out.")
    arguments = parser.parse_args()
    problem = spiral(arguments.n, arguments.beta)
    began = time.perf_counter()
    exact = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-8)).certificate
    print("| method | seconds | value | from the optimum |\n|---|---|---|---|")
    print(row("column generation, certified", time.perf_counter() - began, exact.primal, exact.primal))
    methods = {
        "relax, certified bound": lambda: relax(problem, "patterns").dual,
        "matrix_frac, Clarabel": lambda: matrix_fractional(problem, "CLARABEL"),
    }
    if arguments.scs_steps:
        methods["matrix_frac, SCS"] = lambda: matrix_fractional(problem, "SCS", max_iters=arguments.scs_steps)
    for name, method in methods.items():
        began = time.perf_counter()
        value = method()
        print(row(name, time.perf_counter() - began, value, exact.primal), flush=True)


if __name__ == "__main__":
    main()
