"""Problems of tens to thousands of samples, where constants of rounding begin to matter."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.gauges import GAUGES
from bidual.operators import GatedOperator, LinearOperator, NeuronOperator
from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.patterns import activations
from bidual.polar import DiagonalBound, Faces, LocalSearch, Sphere, bound_near
from bidual.polar.base import Make
from bidual.polar.products.oracle import ProductBound
from bidual.problems.certificate import Certificate, Scope, certify, judge
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from bidual.training.copositive.training import relax
from bidual.training.relu.column_generation import ColumnGeneration
from soundness.blocks import Lifted
from soundness.cases import BREAKDOWNS, Bound, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import GAUGES as PRICES
from soundness.extended import LOSSES, gated_design, relu_features, wide
from soundness.networks import Network, told
from soundness.samples import HARD, kind_of, samples, targets
from soundness.steepest import directions_of, steepest

_SECONDS = 0.3
_NAMES = ("linear", "gated", "neurons")


def _between(rng: Generator, least: int, most: int) -> int:
    """A whole number whose logarithm is uniform."""
    return int(np.round(np.exp(rng.uniform(np.log(least), np.log(most)))))


def large_blocks_case(rng: Generator) -> Iterator[Issued]:
    """Given blocks: at rough points, after a few steps, and where solvers come to rest."""
    name, gauge, double = str(rng.choice(_NAMES)), str(rng.choice(list(GAUGES))), bool(rng.random() < 0.7)
    kind = kind_of(rng, double)
    loss, c = str(rng.choice(list(LOSSES))), int(rng.integers(1, 4))
    n, d = _between(rng, 50, 2000), int(rng.integers(1, 21))
    X = samples(rng, kind, n, d, double)
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    lifted = _lifted(rng, name, X, c)
    problem = Problem(lifted.operator, fit.datafit, GAUGES[gauge](), 1.0)
    problem = problem.with_beta(single(share_of_beta_max(rng) * (problem.beta_max or 1.0)))
    given = labels(
        architecture=f"{name}, midsized",
        loss=loss,
        gauge=gauge,
        solver="auto",
        dtype=torch.float64,
        scope="BLOCKS",
        data=kind,
    )

    def objective(Z: ndarray) -> np.longdouble:
        seen, price = problem.operator.forward(torch.from_numpy(Z)), PRICES[gauge](wide(Z))
        return fit.value(problem.datafit, lifted.predictions(Z), seen) + price * np.longdouble(problem.beta)

    issued = Issued(given, attained=[objective(problem.operator.zeros().numpy())])
    try:
        certificates = _solved(rng, problem)
    except BREAKDOWNS as error:
        certificates, issued.refused = [], type(error).__name__
    issued.certificates = [(made, objective(made.point.numpy())) for made in certificates]
    yield issued


def _lifted(rng: Generator, name: str, X: ndarray, c: int) -> Lifted:
    there, d = torch.from_numpy(X), X.shape[1]
    drawn = rng.standard_normal((int(rng.integers(1, 6)), d))
    if name == "linear":
        return Lifted(LinearOperator(there, c), wide(X))
    if name == "neurons":
        drawn = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return Lifted(NeuronOperator(there, torch.from_numpy(drawn), c), relu_features(X, drawn))
    active = activations(there, torch.from_numpy(drawn.T))
    return Lifted(GatedOperator(there, active, c), gated_design(X, active.numpy()))


def _solved(rng: Generator, problem: Problem) -> list[Certificate]:
    runs = [solve_auto(problem, Limits(1e-10, steps, max_time=_SECONDS)) for steps in (2, 500)]
    near = runs[1].Z * (1 + 1e-9 * torch.from_numpy(rng.standard_normal(runs[1].Z.shape)))
    rough = torch.from_numpy(rng.standard_normal(near.shape) * 10.0 ** rng.uniform(-6, 6))
    return [*(run.certificate for run in runs), certify(problem, near), certify(problem, rough)]


class _Judging(NamedTuple):
    """An oracle, and the most samples of rank 2, 3, 4, 5 that it is asked about."""

    make: Make
    sizes: tuple[int, ...]


ORACLES: dict[str, _Judging] = {
    "Faces": _Judging(Faces, (200, 40, 18, 12)),
    "Sphere": _Judging(lambda X: Sphere(X, tol=1e-9, max_simplices=1500), (200, 60, 60, 60)),
    "DiagonalBound": _Judging(lambda X: DiagonalBound(X, steps=5), (200, 200, 200, 200)),
    "ProductBound": _Judging(lambda X: ProductBound(X, steps=15), (200, 200, 200, 200)),
    "SemidefiniteBound": _Judging(lambda X: SemidefiniteBound(X, max_steps=50), (40, 40, 40, 40)),
    "BranchAndBound": _Judging(lambda X: BranchAndBound(X, 3, 0.3, 1e-6, 50), (30, 30, 30, 30)),
    "patterns": _Judging(Faces, (14, 9)),
    "joint": _Judging(Faces, (40, 20, 14, 12)),
}


def large_network_case(rng: Generator) -> Iterator[Issued]:
    """ReLU networks after a few rounds of column generation, judged by an oracle or a relaxation."""
    name, kind = str(rng.choice(list(ORACLES))), str(rng.choice(list(HARD)))
    loss = "squared" if name == "patterns" else str(rng.choice(list(LOSSES)))
    judging = ORACLES[name]
    rank = int(rng.integers(len(judging.sizes)))
    n, c = _between(rng, min(20, judging.sizes[rank]), judging.sizes[rank]), int(rng.integers(1, 4))
    X, fit = HARD[kind](rng, n, rank + 2), Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, 1.0)
    peak = LocalSearch(problem.X, 32).steepest(fit.datafit.grad(torch.zeros_like(fit.datafit.targets))).bracket.lower
    problem = problem.with_beta(single(float(10.0 ** rng.uniform(-3, 0)) * (peak or 1.0)))
    network = Network(X, fit, problem)
    issued = Issued(told(network, name, kind) | {"architecture": "relu, midsized"})
    issued.attained = [network.objective(X[:1], np.zeros((1, c)))]
    try:
        done = solve(
            problem,
            ColumnGeneration(LocalSearch(problem.X, 48)),
            Limits(1e-9, int(rng.choice([2, 12])), max_time=_SECONDS),
        )
        _judge(rng, issued, network, done, name)
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
    yield issued


def _judge(rng: Generator, issued: Issued, network: Network, done: Solution, name: str) -> None:
    """The certificate, and the bound of the polar that it rests on."""
    problem, V = network.problem, done.dual_point
    if name in ("patterns", "joint"):
        relaxed = relax(problem, name, max_time=_SECONDS, tol=1e-6)
        V, upper, bound = relaxed.V, relaxed.polar, bound_near(problem.X, relaxed.V, relaxed.polar)
    else:
        oracle = ORACLES[name].make(problem.X)
        upper, bound = oracle.steepest(V).bracket.upper, lambda W: oracle.steepest(W).bracket.upper
    certificate, own = network.of(judge(done.problem, done.Z, V, bound, Scope.ALL_PATTERNS), done.problem)
    issued.certificates = [(certificate, own)]
    if name in ("patterns", "joint"):
        issued.certificates.append((replace(certificate, dual=relaxed.dual), own))
    X, slopes = problem.X.numpy(), V.numpy()
    value = steepest(X, slopes, directions_of(rng, X, slopes, done.neurons[:40].numpy()))
    issued.bounds.append(Bound(f"{name}, midsized", upper, value))
