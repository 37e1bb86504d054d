"""What the relaxation behind the product bound is worth at small n, next to what the bound reaches.

    python benchmarks/relaxation_values.py [--samples 24 40] [--shares 0.1 0.03 0.01] [--data NAME ...] [--seconds 10]

The relaxation has one moment matrix of (u, b, w) for each sign of the output weight, w > 0 its length, a = X u + b:
products of a, b and w are not negative, a_i b_i = 0, |E a_i u| <= E a_i w, |E b_i u| <= E b_i w and tr E u u^T = E w^2.
Its value is that of a general solver of cone programs, not proved. "root" is the product bound without cells by signs
of rows, which can be no tighter than the relaxation; "cells" is the product bound as it is. Gaps are relative to the
best network that was found.
"""

import argparse
import math
from itertools import product
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import torch
from numpy.typing import NDArray

from bidual.patterns.reduction import reduce_rank
from bidual.problems.problem import ReluProblem
from bidual.training.relu import product_bound
from proof_times import proof_course
from sdpnn import Answer, after, answer, data_term, scs_answer, trained
from tables import SMALL, small_problem

_CLARABEL_ROWS = 30  # up to so many, an interior point is a matter of seconds


def side(x: NDArray[np.float64], price: float) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """E a w, the price and the constraints of the neurons whose output weight has one sign; rows x of length one."""
    n, r = x.shape
    moments = cp.Variable((r + n + 1, r + n + 1), PSD=True)
    U, B = moments[:r, :r], moments[r:-1, r:-1]
    ub, uw, bw, ww = moments[:r, r:-1], moments[:r, -1:], moments[r:-1, -1:], moments[-1, -1]
    xub = x @ ub
    ab, aw = xub + B, x @ uw + bw
    au, bu = x @ U + ub.T, ub.T
    aa = x @ U @ x.T + xub + xub.T + B
    constraints = [aa >= 0, B >= 0, ab >= 0, cp.diag(ab) == 0, aw >= 0, bw >= 0, cp.trace(U) == ww]
    constraints += [cp.SOC(aw[:, 0], au, axis=1), cp.SOC(bw[:, 0], bu, axis=1)]
    return aw, price * ww, constraints


def signed(problem: ReluProblem) -> cp.Problem:
    """The relaxation by both signs of the output weight, on the rows' span."""
    x = reduce_rank(problem.X.numpy()).samples
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    above, below = (side(x / lengths, problem.beta) for _ in range(2))
    predictions = cp.multiply(lengths, above[0] - below[0])
    cost = data_term(predictions, problem) + above[1] + below[1]
    return cp.Problem(cp.Minimize(cost), above[2] + below[2])


def answered(program: cp.Problem, n: int, seconds: float) -> Answer:
    """By an interior point where that is affordable, else by SCS at an accuracy of 1e-6."""
    if n > _CLARABEL_ROWS:
        return scs_answer(program, seconds, 1e-6)
    return answer(program, cp.CLARABEL, {})


def row(name: str, n: int, share: float, seconds: float, limit: float) -> str:
    task, plan = small_problem(name, n, share)
    task = task.to(torch.float64)
    found, _ = trained(task, plan)
    said = answered(signed(task), n, limit)
    gap = 1 - said.value / found.certificate.primal
    with patch.object(product_bound, "_BEFORE_CELLS", math.inf):
        root = proof_course(task, found, seconds=seconds)
    cells = proof_course(task, found, seconds=seconds)
    value = f"{100 * gap:.2g} % @ {said.seconds:.2g} s {said.status}".strip()
    proved = f"{after(root, seconds)} | {after(cells, seconds)}"
    return f"| {name} | {n} x {task.X.shape[1]} | {share:g} | {value} | {proved} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(SMALL), choices=list(SMALL))
    parser.add_argument("--samples", type=int, nargs="+", default=[24, 40])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.03, 0.01], help="of beta_max")
    parser.add_argument("--seconds", type=float, default=10.0, help="for a proof")
    parser.add_argument("--limit", type=float, default=100.0, help="seconds for SCS")
    given = parser.parse_args()
    print("| data | rows | beta / beta_max | relaxation, not proved | product bound, root | product bound, cells |")
    print("|---|---|---|---|---|---|")
    for n, name, share in product(given.samples, given.data, given.shares):
        print(row(name, n, share, given.seconds, given.limit), flush=True)


if __name__ == "__main__":
    main()
