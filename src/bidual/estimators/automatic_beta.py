"""The weight decay of ReLU networks where none is given: ``beta="auto"``."""

import torch

from bidual.problems.problem import ReluProblem

_LEAST, _MOST = 0.03, 0.6  # of beta_max


def automatic_beta(problem: ReluProblem, beta_max: float) -> float:
    r"""A rule that knows n and how well neurons tell the targets: with the slopes v_i of the loss at the zero network,

        beta = 0.03 beta_max / r^2,   r^2 = beta_max^2 / ((sum_i |v_i|^2 / w_i) (sum_i w_i |x_i|^2 / d)),

    and at least 0.03 and at most 0.6 beta_max. For n standardised samples r = beta_max / (sqrt(n) |V|): where one
    neuron tells much about the targets, r is large and beta a small share of beta_max, and where they are mostly noise
    it is a large one. The same networks come out whatever the units of weights, for squared loss of targets, and of
    samples if neurons have no bias, whose constant column has a unit of its own. Number, power and limits were
    measured (docs/uci.md, "The weight decay").
    """
    if not beta_max > 0:
        return 1.0
    weights, V, X = problem.datafit.weights, problem.dual_at_zero, problem.X
    slopes = torch.linalg.vector_norm(V / weights.sqrt()) / beta_max
    spread = torch.linalg.vector_norm(weights.sqrt() * X) / X.shape[1] ** 0.5
    return beta_max * min(_MOST, _LEAST * max(1.0, float(slopes * spread) ** 2))
