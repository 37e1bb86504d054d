"""A race with a published relaxation: SDPNN-IW, solved by SCS, against the product bound.

    python benchmarks/sdpnn.py [--samples 24 60 100] [--shares 0.1 0.03] [--data NAME ...] [--seconds 100] [--proof 30]

SDPNN-IW is the program of Prakhya, Birdal and Yurtsever, "Convex formulations for training two-layer ReLU neural
networks" (ICLR 2025): second moments of a neuron, relaxed from completely positive to doubly non-negative, in cvxpy
with SCS at accuracy 1e-4 and at most 100,000 steps, as in its authors' code. Both gaps are relative to the best network
that was found. That of SDPNN-IW is of the value that SCS reports, which proves nothing as it stands: it may even exceed
the value of a network, and the gap is negative then. That of the product bound is certified. Seconds are those of SCS
alone, without cvxpy's, and of the proof alone, without training.
"""

import argparse
import time
from dataclasses import dataclass
from itertools import product

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
import torch

from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.training.relu.plan import ReluPlan
from proof_times import Course, proof_course
from tables import SMALL, small_problem

_MAX_ITERS = 100_000  # of SCS


@dataclass(frozen=True)
class Answer:
    """What a solver says of a relaxation: its value, seconds, and how it ended."""

    value: float
    seconds: float
    status: str


def data_term(P: cp.Expression, problem: ReluProblem) -> cp.Expression:
    """F(P) for the squared loss: half the squares, the offset of the outputs free if the problem has one."""
    Y = problem.datafit.targets.numpy()
    offset = cp.Variable((1, Y.shape[1])) if problem.datafit.intercept else np.zeros((1, Y.shape[1]))
    return 0.5 * cp.sum_squares(P + np.ones((len(Y), 1)) @ offset - Y)


def published(problem: ReluProblem) -> cp.Problem:
    """The program of SDPNN-IW: moments of (a, b, u, w), a = (X u)_+, b = (-X u)_+; a - b = X u in the mean square.

    Its authors solve it by MOSEK, or by SCS where there is none.
    """
    X, c = problem.X.numpy(), problem.datafit.targets.shape[1]
    n, d = X.shape
    moments = cp.Variable((2 * n + d + c, 2 * n + d + c), PSD=True)
    relation = sp.hstack([-sp.eye(n), sp.eye(n), sp.csr_matrix(X), sp.csr_matrix((n, c))]).tocsr()
    products = moments[: 2 * n, : 2 * n]
    price = problem.beta / 2 * cp.trace(moments[2 * n :, 2 * n :])
    constraints = [
        products >= 0,
        cp.diag(products[:n, n:]) == 0,
        cp.upper_tri(relation @ moments @ relation.T) == 0,
        cp.diag(relation @ moments @ relation.T) == 0,
    ]
    return cp.Problem(cp.Minimize(data_term(moments[:n, 2 * n + d :], problem) + price), constraints)


def scs_answer(program: cp.Problem, seconds: float, eps: float) -> Answer:
    """By SCS, as far as it gets in so many seconds."""
    return answer(program, cp.SCS, {"eps": eps, "max_iters": _MAX_ITERS, "time_limit_secs": seconds})


def answer(program: cp.Problem, solver: str, options: dict[str, float]) -> Answer:
    """Solve; the seconds are the solver's, without those that cvxpy takes to write the program down for it."""
    data, chain, inverse = program.get_problem_data(solver, solver_opts=options)
    began = time.perf_counter()
    raw = chain.solve_via_data(program, data, solver_opts=options)
    seconds = time.perf_counter() - began
    try:
        program.unpack_results(raw, chain, inverse)
    except cp.SolverError:
        return Answer(np.nan, seconds, "failed")
    value = np.nan if program.value is None else float(program.value)
    return Answer(value, seconds, "" if program.status == cp.OPTIMAL else "not converged")


def reached(course: Course, gap: float) -> str:
    """When a proof was at least as tight as a gap, which is that of no bound where it is negative."""
    if not gap >= 0:
        return "no bound"
    return next((f"{at:.2g} s" for at, own in course if own <= gap), "not reached")


def after(course: Course, seconds: float) -> str:
    """How tight a proof was after so many seconds, or at its end."""
    until = [(at, own) for at, own in course if at <= seconds] or [course[0]]
    at, own = min(until, key=lambda entry: entry[1])
    return f"{100 * own:.2g} % @ {at:.2g} s"


def trained(task: ReluProblem, plan: ReluPlan) -> tuple[Solution, float]:
    """The best network that is found, and seconds."""
    began = time.perf_counter()
    return plan.train(task, Limits(1e-5), prove=False), time.perf_counter() - began


def row(name: str, n: int, share: float, seconds: float, longest: float, eps: float) -> str:
    task, plan = small_problem(name, n, share)
    task = task.to(torch.float64)
    found, training = trained(task, plan)
    said = scs_answer(published(task), seconds, eps)
    gap = 1 - said.value / found.certificate.primal
    course = proof_course(task, found, seconds=min(max(said.seconds, 1.0), longest))
    theirs = f"{100 * gap:.2g} % @ {said.seconds:.2g} s {said.status}".strip()
    ours = f"{reached(course, gap)} | {after(course, said.seconds)}"
    return f"| {name} | {n} x {task.X.shape[1]} | {share:g} | {theirs} | {ours} | {training:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(SMALL), choices=list(SMALL))
    parser.add_argument("--samples", type=int, nargs="+", default=[24, 60, 100])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.03], help="of beta_max")
    parser.add_argument("--seconds", type=float, default=100.0, help="for SCS")
    parser.add_argument("--proof", type=float, default=30.0, help="seconds for the product bound, if SCS took longer")
    parser.add_argument("--eps", type=float, default=1e-4, help="accuracy of SCS")
    given = parser.parse_args()
    print("| data | rows | share | SDPNN-IW, not proved | product bound as tight | certified by then | training, s |")
    print("|---|---|---|---|---|---|---|")
    for n, name, share in product(given.samples, given.data, given.shares):
        print(row(name, n, share, given.seconds, given.proof, given.eps), flush=True)


if __name__ == "__main__":
    main()
