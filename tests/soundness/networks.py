"""Certificates over all activation patterns, by every method of training ReLU networks."""

from collections.abc import Iterator

import cvxpy as cp
import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.numerics.norms import L2
from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.polar import DiagonalBound, Faces, NeuronOracle, Sphere
from bidual.problems.certificate import Certificate, Scope, certify, judge
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Solution, neurons_of
from bidual.training.relu.plan import RELU_SOLVERS, ReluPlan
from oracles.cvxpy_oracle import cvxpy_point
from oracles.relu_problems import circle
from soundness.cases import BREAKDOWNS, TRANSLATING, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import LOSSES, relu_features, vector_norm, wide
from soundness.samples import kind_of, samples, targets

_SECONDS = 0.6  # for one training
VARIANTS = 3


class Network:
    """A ReLU problem in some units, with its objective in extended precision."""

    def __init__(self, X: ndarray, fit: Fit, problem: ReluProblem) -> None:
        self.X, self.fit, self.problem = X, fit, problem

    def objective(self, neurons: ndarray, weights: ndarray, seen: torch.Tensor | None = None) -> np.longdouble:
        """F(sum_j (X u_j)_+ w_j^T) + beta sum_j |u_j|_C |w_j|_R, whatever the length of the neurons."""
        u, w = wide(neurons), wide(weights).reshape(len(neurons), self.fit.Y.shape[1])
        orders = self.problem.hidden_norm.order, self.problem.output_norm.order
        price = (vector_norm(u, orders[0]) * vector_norm(w, orders[1])).sum()
        return self.fit.value(self.problem.datafit, relu_features(self.X, u) @ w, seen) + self.problem.beta * price

    def of(self, certificate: Certificate, master: Problem) -> tuple[Certificate, np.longdouble]:
        """A certificate of a problem over some neurons, with the objective of its point."""
        operator = master.operator.to(torch.float64)
        neurons = neurons_of(master.to(torch.float64)).numpy()
        return certificate, self.objective(neurons, certificate.point.numpy(), operator.forward(certificate.point))


def network_case(rng: Generator) -> Iterator[Issued]:
    """One problem in several units and precisions, with several methods, held against a network found by cvxpy."""
    loss, double = str(rng.choice(list(LOSSES))), bool(rng.random() < 0.4)
    kind = kind_of(rng, double)
    n, d, c = int(rng.integers(1, 7)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X, fit = samples(rng, kind, n, d, double), Fit.draw(rng, loss, targets(rng, loss, n, c))
    beta = beta_for(rng, X, fit)
    known = reference(rng, X, fit, beta)
    for _ in range(VARIANTS):
        power = int(rng.integers(-40, 41)) if rng.random() < 0.5 else 0
        up = int(rng.integers(-40, 41)) if loss in TRANSLATING and rng.random() < 0.5 else 0
        in_range = abs(power) + abs(up) < 20 and not double
        dtype = torch.float32 if rng.random() < 0.4 and in_range else torch.float64
        unit, there = 2.0 ** (up - power), fit.scaled(up)
        if not 0 < beta * fit.value_scale(up) / unit < np.inf:
            continue
        samples_there = torch.from_numpy(X * 2.0**power).to(dtype)
        problem = ReluProblem(samples_there, there.datafit_in(dtype), beta * fit.value_scale(up) / unit)
        network = Network(X * 2.0**power, there, problem)
        attained = [network.objective(u, w * unit) for u, w in known]
        yield _trained(rng, network, kind, attained)


def beta_for(rng: Generator, X: ndarray, fit: Fit) -> float:
    """A share of the least beta whose optimum is the zero network."""
    datafit = fit.datafit
    V = datafit.into_domain(datafit.grad(torch.zeros_like(datafit.targets)))
    peak = Faces(torch.from_numpy(X)).steepest(V).bracket.lower
    return single(share_of_beta_max(rng) * (peak or 1.0))


def reference(rng: Generator, X: ndarray, fit: Fit, beta: float) -> list[tuple[ndarray, ndarray]]:
    """Output weights by cvxpy for hidden neurons on a grid, at the samples' signs, and drawn."""
    d = X.shape[1]
    rows = X / np.maximum(np.abs(X).max(1, keepdims=True), 1e-300)
    if d == 1:
        neurons = np.array([[1.0], [-1.0]])
    elif d == 2:
        neurons = circle(torch.from_numpy(rows), 24).numpy()
    else:
        neurons = np.concatenate([rng.standard_normal((24, d)), rows, -rows])
        neurons = neurons[np.abs(neurons).max(1) > 0]
    neurons = neurons / np.linalg.norm(neurons, axis=1, keepdims=True)
    moderate, unit = fit.of_moderate_weight()
    problem = ReluProblem(torch.from_numpy(X), moderate.datafit, beta / unit).restricted_to(torch.from_numpy(neurons))
    try:
        weights = cvxpy_point(problem)[1]
    except (cp.SolverError, ValueError):
        weights = np.zeros((len(neurons), 1, problem.operator.output_shape[1]))
    return [(neurons, weights), (neurons[:1], 0 * weights[:1])]


def _trained(rng: Generator, network: Network, kind: str, attained: list[np.longdouble]) -> Issued:
    problem, trainer = network.problem, ReluPlan(network.problem.X)
    solver = str(rng.choice(["auto", *RELU_SOLVERS]))
    issued = Issued(told(network, solver, kind), attained=attained)
    found: list[tuple[Certificate, np.longdouble]] = []
    try:
        done = trainer.train(problem, Limits(float(rng.choice([1e-2, 1e-5, 1e-9])), max_time=_SECONDS), solver=solver)
        found.append(network.of(done.certificate, done.problem))
        found.append(_by_another_oracle(rng, network, done))
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
    issued.certificates = [*found, somewhere(rng, network)]
    return issued


def told(network: Network, solver: str, kind: str) -> dict[str, str]:
    return labels(
        architecture="relu",
        loss=network.fit.loss,
        gauge="weight decay",
        solver=solver,
        dtype=network.problem.X.dtype,
        scope="ALL_PATTERNS",
        data=kind,
    )


def somewhere(rng: Generator, network: Network) -> tuple[Certificate, np.longdouble]:
    """A certificate at random neurons and weights, and dual candidates, all in the problem's own precision."""
    problem, like = network.problem, network.problem.X
    drawn = L2.unit(torch.from_numpy(rng.standard_normal((3, like.shape[1]))).to(like))
    size = 10.0 ** rng.uniform(-9, 9)
    Z = torch.from_numpy(rng.standard_normal((3, 1, problem.datafit.targets.shape[1])) * size).to(like)
    master = problem.restricted_to(drawn)
    V = master.residual(Z) * float(rng.choice([-1, 1, 1e-3, 1e3]))
    certificate = certify(master, Z, [V], oracle=Faces(like))
    return network.of(certificate, master)


def _by_another_oracle(rng: Generator, network: Network, done: Solution) -> tuple[Certificate, np.longdouble]:
    """The same dual point under a bound of the polar that training did not use."""
    X = network.problem.X
    makes = [
        lambda: Faces(X),
        lambda: Sphere(X, max_simplices=300),
        lambda: DiagonalBound(X, steps=10),
        lambda: SemidefiniteBound(X, max_steps=100),
        lambda: BranchAndBound(X, max_nodes=3, max_time=0.2, steps=100),
    ]
    oracle: NeuronOracle = makes[int(rng.integers(len(makes)))]()
    V = done.dual_point.to(network.problem.X.dtype)
    bound = lambda W: oracle.steepest(W).bracket.upper  # noqa: E731
    return network.of(judge(done.problem, done.Z, V, bound, Scope.ALL_PATTERNS), done.problem)
