r"""Gates for gated networks: the neurons of a ReLU network that is trained quickly, without a certificate.

A gated network whose gates are the neurons u_j of a ReLU network can be that network at the same price: for Z_j = u_j
w_j^T, X D_j Z_j = (X u_j)_+ w_j^T and |Z_j|_* = |u_j| |w_j| (BM eq. 5). Under weight decay its optimum is therefore no
larger than the objective of the ReLU networks that gave their neurons. Many random gates fit training samples better
still, with patterns that no ReLU network of this price uses; docs/uci.md compares both on held-out samples.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns import activations, distinct
from bidual.patterns.reduction import reduce_rank
from bidual.problems.problem import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.training.relu.fold_networks import FoldPaths
from bidual.training.relu.plan import ReluPlan

FRACTIONS = (0.3, 0.1, 0.03, 0.01)  # of beta_max, where networks give their neurons
_STARTS = 16  # of the search for beta_max
_NUMBERS, _FEWEST_ROWS = 200_000, 500  # in the samples that are seen, and rows that are seen in any case


def gates_of_quick_training(problem: ReluProblem, seed: int, max_time: float | None = None) -> Float[Tensor, "d p"]:
    """The neurons of ReLU networks at some betas, of distinct patterns; none where zero is the best network.

    They do not depend on the problem's beta, so that one set serves a whole path, nor (up to rounding) on the order of
    samples or on whether one comes twice or has a weight of two. Of many samples only some are seen.

    Args:
        problem: of a plain network under a smooth loss.
        seed: of the search for neurons, and of which samples are seen.
        max_time: about how many seconds training may take, beyond which the networks are those of the last step.
    """
    problem.check_plain("gates_of_quick_training")
    problem = problem.to(torch.float64)
    with one_thread():  # small products, whose sums then do not depend on the caller's threads
        neurons = _neurons(_on_some_rows(_merged(problem), seed), seed, max_time)
    gates = neurons[neurons.isfinite().all(1)].T.contiguous()
    return gates[:, distinct(activations(problem.X, gates))]


def _neurons(problem: ReluProblem, seed: int, max_time: float | None) -> Float[Tensor, "p d"]:
    """In the coordinates of the row space of X, outside of which neurons cost and have no effect (CP eq. 22)."""
    reduced = reduce_rank(problem.X.cpu().numpy())
    problem = replace(problem, X=torch.from_numpy(reduced.samples).to(problem.X))
    beta_max = ReluPlan(problem.X, "search", _STARTS, seed).beta_max(problem)
    if not beta_max > 0:
        return problem.X.new_zeros(0, len(reduced.basis))
    whole = problem.X.new_ones(1, len(problem.X))
    each = None if max_time is None else max_time / len(FRACTIONS)
    paths = FoldPaths(problem, whole, seed, max_time=each)
    found = [network.neurons for [network] in paths.networks([share * beta_max for share in FRACTIONS])]
    return torch.cat(found) @ torch.from_numpy(reduced.basis.T).to(problem.X)


def _merged(problem: ReluProblem) -> ReluProblem:
    """Equal samples with equal targets as one that has their weights, in an order of their own."""
    fit, d = problem.datafit, problem.neuron_size
    both, place = torch.unique(torch.cat([problem.X, fit.targets], 1), dim=0, return_inverse=True)
    weight = problem.X.new_zeros(len(both)).index_add_(0, place, fit.weights[:, 0])
    return _with_rows(problem, both[:, :d].contiguous(), both[:, d:].contiguous(), weight)


def _with_rows(problem: ReluProblem, X: Tensor, targets: Tensor, weight: Tensor) -> ReluProblem:
    return replace(problem, X=X, datafit=replace(problem.datafit, targets=targets, weight=weight))


def _on_some_rows(problem: ReluProblem, seed: int) -> ReluProblem:
    """The problem of a random part of the samples, if there are many."""
    count = max(_FEWEST_ROWS, _NUMBERS // problem.neuron_size)
    if count >= len(problem.X):
        return problem
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(problem.X), generator=generator)[:count].sort().values.to(problem.X.device)
    fit = problem.datafit
    return _with_rows(problem, problem.X[rows], fit.targets[rows], fit.weights[rows, 0])
