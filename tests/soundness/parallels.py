"""Networks of three layers and more under the path norm: training, low rank, given cells, and their polars."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.operators.parallel import places
from bidual.papers.methods.constrained import NORMS, ConstrainedSolution, solve_constrained
from bidual.papers.methods.low_rank import train_low_rank
from bidual.polar.subnetworks.base import ParallelOracle
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.certificate import Certificate
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from soundness.cases import BREAKDOWNS, Bound, Fit, Issued, labels
from soundness.extended import LOSSES, tree_features, vector_norm, wide
from soundness.networks import beta_for
from soundness.samples import kind_of, samples, targets

_SECONDS = 0.8
_WIDTHS = ((1,), (2,), (3,), (2, 1), (1, 2), (2, 2))
_ROUNDING = np.longdouble(2.0) ** -60


def _told(architecture: str, loss: str, data: str, scope: str, solver: str, gauge: str = "path norm") -> dict[str, str]:
    return labels(
        architecture=architecture,
        loss=loss,
        gauge=gauge,
        solver=solver,
        dtype=torch.float64,
        scope=scope,
        data=data,
    )


def _drawn(rng: Generator, c: int) -> tuple[str, Fit, ParallelProblem]:
    kind, loss = kind_of(rng, double=True), str(rng.choice(list(LOSSES)))
    widths = _WIDTHS[int(rng.integers(len(_WIDTHS)))]
    n, d = int(rng.integers(1, 6 if c == 1 else 5)), int(rng.integers(1, 3))
    X = samples(rng, kind, n, d, double=True)
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    beta = beta_for(rng, X, fit) * float(np.sqrt(np.prod(widths)))
    return kind, fit, ParallelProblem(torch.from_numpy(X), fit.datafit, beta, widths)


def _objective(problem: ParallelProblem, fit: Fit, neurons: torch.Tensor, Z: torch.Tensor) -> np.longdouble:
    """F(sum_k f_k(X) z_k^T) + beta sum_k |W_1k| |z_k|."""
    u, w = wide(neurons.numpy()), wide(Z.numpy()).reshape(len(neurons), fit.Y.shape[1])
    seen = problem.restricted_to(neurons).operator.forward(Z)
    price = (vector_norm(u, 2.0) * vector_norm(w, 2.0)).sum()
    features = tree_features(problem.X.numpy(), u, places(tuple(problem.widths)))
    return fit.value(problem.datafit, features @ w, seen) + problem.beta * price


def parallel_case(rng: Generator) -> Iterator[Issued]:
    """Several outputs, widths and layers; sometimes on the part of the samples of a lower rank."""
    kind, fit, problem = _drawn(rng, int(rng.integers(1, 4)))
    low = bool(rng.random() < 0.4)
    issued = Issued(_told("low rank" if low else f"parallel {problem.widths}", fit.loss, kind, "ALL_PATTERNS", "auto"))
    nothing = problem.restricted_to(problem.X.new_zeros(1, problem.neuron_size)).operator
    issued.attained = [_objective(problem, fit, nothing.neurons, nothing.zeros())]
    try:
        issued.certificates = _low_rank(rng, problem, fit) if low else [_trained(problem, fit)]
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
    yield issued


def _trained(problem: ParallelProblem, fit: Fit) -> tuple[Certificate, np.longdouble]:
    done = ParallelPlan(problem.X, problem.widths).train(problem, Limits(1e-6, max_time=_SECONDS))
    certificate = done.certificate
    return certificate, _objective(problem, fit, done.neurons, certificate.point)


def _low_rank(rng: Generator, problem: ParallelProblem, fit: Fit) -> list[tuple[Certificate, np.longdouble]]:
    rank = int(rng.integers(1, min(problem.X.shape) + 1))
    done = train_low_rank(problem, rank, Limits(1e-6, max_time=_SECONDS))
    point = done.solution.neurons, done.certificate.point
    return [(done.certificate, _objective(problem, fit, *point)), _trained(problem, fit)]


def cells_case(rng: Generator) -> Iterator[Issued]:
    """PR (21): the convex program over given cells, with all inequalities, in both norms."""
    kind, fit, problem = _drawn(rng, 1)
    X, width, norm = problem.X, int(problem.widths[0]), str(rng.choice(NORMS))
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    cells = SubNetworkGates.sample(X.shape[1], int(rng.integers(1, 6)), width, generator)
    issued = Issued(_told("cells with cones", fit.loss, kind, "BLOCKS", "interior_point", norm))
    try:
        found = solve_constrained(cells, X, fit.datafit, problem.beta, norm=norm, time_limit=_SECONDS)
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
        yield issued
        return
    issued.certificates = [(found.certificate, _over_cells(found, fit, found.certificate.point.numpy()))]
    longer = (0.0, 0.5, 1 - 1e-4, 1 - 1e-7, 1 + 1e-7, 1 + 1e-4, 2.0)  # cones hold these too
    issued.attained = [_over_cells(found, fit, t * found.certificate.point.numpy()) for t in longer]
    issued.false = [] if found.recheck() else ["the solution over cells can be rechecked"]
    yield issued


def _over_cells(found: ConstrainedSolution, fit: Fit, Z: ndarray) -> np.longdouble:
    """The objective where every sub-network is linear: blocks are sub-networks, or their units for weight decay."""
    operator, Z = found.problem.operator, wide(Z)
    active = wide(operator.patterns.numpy())  # with the sign of the output weight
    z = Z.reshape(*active.shape[:-1], -1)
    P = (active * (z @ wide(operator.X.numpy()).T)).reshape(-1, len(operator.X)).sum(0)[:, None]
    price = vector_norm(Z.reshape(len(Z), -1), 2.0).sum()
    seen = operator.forward(torch.from_numpy(Z.astype(np.float64)))
    return fit.value(found.problem.datafit, P, seen) + found.problem.beta * price


def parallel_polar_case(rng: Generator) -> Iterator[Issued]:
    """Bounds of the steepest sub-network against those that a search finds."""
    kind, fit, problem = _drawn(rng, int(rng.integers(1, 4)))
    X, widths, c = problem.X, tuple(problem.widths), fit.Y.shape[1]
    V = torch.from_numpy(rng.standard_normal((len(X), c)))
    oracle: ParallelOracle = RelaxedBound(X, widths, nodes=8)
    if len(widths) == 1 and len(X) <= 4 and widths[0] <= 2 and rng.random() < 0.5:
        oracle = ExactParallel(X, widths)
    name = type(oracle).__name__ if c == 1 else f"AllOutputs of {type(oracle).__name__}"
    oracle = (oracle if c == 1 else AllOutputs(oracle, max_queries=12)).within(_SECONDS)
    issued = Issued(labels(architecture="polar", oracle=name, data=kind, slopes="drawn", scope="ALL_PATTERNS"))
    found, more = oracle.steepest(V), ParallelSearch(X, widths, starts=64).steepest(V)
    neurons = torch.cat([found.neurons[:40], more.neurons[:40]]).numpy()
    issued.bounds = [Bound(name, found.bracket.upper, _steepest(problem, V.numpy(), neurons))]
    yield issued


def _steepest(problem: ParallelProblem, V: ndarray, neurons: ndarray) -> np.longdouble:
    """The most of |V^T f(X)| / |W_1| among some sub-networks, less what extended precision can be off by."""
    u = wide(neurons)[np.abs(neurons).max(1, initial=0) > 0]
    if not len(u):
        return np.longdouble(0)
    features = tree_features(problem.X.numpy(), u, places(tuple(problem.widths)))
    best = (vector_norm(features.T @ wide(V), 2.0) / vector_norm(u, 2.0)).max()
    size = (vector_norm(wide(problem.X.numpy()), 2.0) * np.abs(wide(V)).sum(1)).sum() * 2 * problem.units
    return max(best - (sum(V.shape) + u.shape[1]) * _ROUNDING * size, np.longdouble(0))
