"""Certificates over all activation patterns, by every method of training ReLU networks."""

from collections.abc import Iterator
from itertools import product

import cvxpy as cp
import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.certificate import Certificate, Scope, certify, judge
from bidual.column_generation import ColumnGeneration, Training
from bidual.norms import L2, NORMS
from bidual.parallel.problem import ParallelProblem
from bidual.parallel.training import ParallelTrainer
from bidual.patches import Convolution, ImagePatches
from bidual.polar import Faces
from bidual.polar.diagonal import DiagonalBound
from bidual.polar.norms import NormFaces
from bidual.polar.sphere import Sphere
from bidual.relu import ReluProblem
from bidual.relu_training import RELU_SOLVERS, ReluTrainer
from oracles.cvxpy_oracle import cvxpy_point
from oracles.explicit_readouts import image_rows, window_averages
from oracles.relu_problems import circle
from soundness.cases import BREAKDOWNS, TRANSLATING, Fit, Issued, labels, share_of_beta_max
from soundness.extended import LOSSES, wide
from soundness.samples import KINDS, samples, targets

_SECONDS = 0.6  # for one training
VARIANTS = 3


class _Network:
    """A ReLU problem in some units, with its objective in extended precision."""

    def __init__(self, X: ndarray, fit: Fit, problem: ReluProblem) -> None:
        self.X, self.fit, self.problem = X, fit, problem

    def objective(self, neurons: ndarray, weights: ndarray) -> np.longdouble:
        """F(sum_j (X u_j)_+ w_j^T) + beta sum_j |u_j|_C |w_j|_R, whatever the length of the neurons."""
        u, w = wide(neurons), wide(weights).reshape(len(neurons), self.fit.Y.shape[1])
        price = (_norm(u, self.problem.hidden_norm.order) * _norm(w, self.problem.output_norm.order)).sum()
        return self.fit.value(self.problem.datafit, np.maximum(wide(self.X) @ u.T, 0) @ w) + self.problem.beta * price

    def of(self, certificate: Certificate, neurons: torch.Tensor) -> tuple[Certificate, np.longdouble]:
        return certificate, self.objective(neurons.numpy(), certificate.point.numpy())


def _norm(x: ndarray, order: float) -> ndarray:
    if order == np.inf:
        return np.abs(x).max(-1, initial=0)
    return np.abs(x).sum(-1) if order == 1 else np.sqrt((x**2).sum(-1))


def network_case(rng: Generator) -> Iterator[Issued]:
    """One problem in several units, with several methods, held against a network found by cvxpy."""
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, d, c = int(rng.integers(1, 7)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X, fit = samples(rng, kind, n, d), Fit.draw(rng, loss, targets(rng, loss, n, c))
    beta = _beta(rng, X, fit)
    known = _reference(rng, X, fit, beta)
    for _ in range(VARIANTS):
        power = int(rng.integers(-40, 41)) if rng.random() < 0.5 else 0
        up = int(rng.integers(-40, 41)) if loss in TRANSLATING and rng.random() < 0.5 else 0
        unit = 2.0 ** (up - power)
        there = fit.scaled(up)
        problem = ReluProblem(torch.from_numpy(X * 2.0**power), there.datafit, beta * fit.value_scale(up) / unit)
        network = _Network(X * 2.0**power, there, problem)
        attained = [network.objective(u, w * unit) for u, w in known]
        yield _trained(rng, network, kind, attained)


def _beta(rng: Generator, X: ndarray, fit: Fit) -> float:
    datafit = fit.datafit
    V = datafit.into_domain(datafit.grad(torch.zeros_like(datafit.targets)))
    peak = Faces(torch.from_numpy(X)).peaks(V).bracket.lower
    return float(np.float32(share_of_beta_max(rng) * (peak or 1.0))) or 1e-30


def _reference(rng: Generator, X: ndarray, fit: Fit, beta: float) -> list[tuple[ndarray, ndarray]]:
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
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, beta).over(torch.from_numpy(neurons))
    try:
        weights = cvxpy_point(problem)[1]
    except (cp.SolverError, ValueError):
        weights = np.zeros((len(neurons), 1, problem.operator.output_shape[1]))
    return [(neurons, weights), (neurons[:1], 0 * weights[:1])]


def _trained(rng: Generator, network: _Network, kind: str, attained: list[np.longdouble]) -> Issued:
    problem, trainer = network.problem, ReluTrainer(network.problem.X)
    solver = str(rng.choice(["auto", *RELU_SOLVERS]))
    told = labels(
        architecture="relu",
        loss=network.fit.loss,
        gauge="weight decay",
        solver=solver,
        dtype=torch.float64,
        scope="ALL_PATTERNS",
        data=kind,
    )
    issued = Issued(told, attained=attained)
    found: list[tuple[Certificate, np.longdouble]] = []
    try:
        done = trainer.train(problem, solver=solver, tol=float(rng.choice([1e-2, 1e-5, 1e-9])), max_time=_SECONDS)
        found.append(network.of(done.solution.certificate, done.neurons))
        found += _by_other_oracles(rng, network, done)
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
    drawn = L2.unit(torch.from_numpy(rng.standard_normal((3, problem.X.shape[1]))))
    Z = torch.from_numpy(rng.standard_normal((3, 1, problem.datafit.targets.shape[1])) * 10.0 ** rng.uniform(-9, 9))
    found.append(network.of(certify(problem.over(drawn), Z, everywhere=Faces(problem.X)), drawn))
    issued.certificates = found
    return issued


def _by_other_oracles(rng: Generator, network: _Network, done: Training) -> list[tuple[Certificate, np.longdouble]]:
    """The same dual point under bounds of the polar that training did not use."""
    X = network.problem.X
    oracles = [Faces(X), Sphere(X, max_cells=300), DiagonalBound(X, steps=10)]
    chosen = oracles[int(rng.integers(len(oracles)))]
    solution, V = done.solution, done.dual_point
    bounds = [lambda W: chosen.peaks(W).bracket.upper]
    made = [judge(done.problem, solution.Z, V, bound, Scope.ALL_PATTERNS) for bound in bounds]
    return [network.of(certificate, done.neurons) for certificate in made]


def norm_case(rng: Generator) -> Iterator[Issued]:
    """Other norms on the two layers."""
    names = list(product(NORMS, NORMS))
    hidden, output = (NORMS[name] for name in names[int(rng.integers(len(names)))])
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, d, c = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X, fit = samples(rng, kind, n, d), Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, _beta(rng, X, fit), hidden, output)
    network = _Network(X, fit, problem)
    oracle = NormFaces(problem.X, hidden, output)
    told = labels(
        architecture="relu",
        loss=loss,
        gauge=f"{hidden.name} and {output.name}",
        solver="column_generation",
        dtype=torch.float64,
        scope="ALL_PATTERNS",
        data=kind,
    )
    issued = Issued(told)
    for rounds in (2, 30):
        try:
            done = ColumnGeneration().train(problem, oracle, tol=1e-8, max_rounds=rounds, max_time=_SECONDS)
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        issued.certificates.append(network.of(done.solution.certificate, done.neurons))
    yield issued


def convolution_case(rng: Generator) -> Iterator[Issued]:
    """ReLU networks on patches of signals, average pooling."""
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, h, c = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    X = torch.from_numpy(samples(rng, kind, n, h + 1))[:, None]
    patches = ImagePatches(X, Convolution.of(1, h))
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    rows = image_rows(X, (h,), (1,), (0,), (1,)).numpy()
    problem = ReluProblem.on(patches, fit.datafit, _beta(rng, rows, fit) if len(rows) == n else 0.1)
    told = labels(
        architecture="relu convolution",
        loss=loss,
        gauge="weight decay",
        solver="column_generation",
        dtype=torch.float64,
        scope="ALL_PATTERNS",
        data=kind,
    )
    pooling = wide(window_averages((2,), (1,)).numpy())

    def objective(certificate: Certificate, neurons: torch.Tensor) -> np.longdouble:
        u, w = wide(neurons.numpy()), wide(certificate.point.numpy()).reshape(len(neurons), c)
        hidden = np.maximum(wide(rows) @ u.T, 0).reshape(n, 2, -1)
        price = (np.sqrt((u**2).sum(1)) * np.sqrt((w**2).sum(1))).sum()
        return fit.value(problem.datafit, np.einsum("k,nkm->nm", pooling[0], hidden) @ w) + problem.beta * price

    issued = Issued(told)
    for rounds in (2, 30):
        try:
            oracle = problem.oracle(Faces)
            done = ColumnGeneration().train(problem, oracle, tol=1e-8, max_rounds=rounds, max_time=_SECONDS)
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        certificate = done.solution.certificate
        issued.certificates.append((certificate, objective(certificate, done.neurons)))
    yield issued


def parallel_case(rng: Generator) -> Iterator[Issued]:
    """Three-layer networks under the path norm."""
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, d, c, width = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    X, fit = samples(rng, kind, n, d), Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = ParallelProblem(torch.from_numpy(X), fit.datafit, _beta(rng, X, fit), width)
    told = labels(
        architecture="parallel",
        loss=loss,
        gauge="path norm",
        solver="column_generation",
        dtype=torch.float64,
        scope="ALL_PATTERNS",
        data=kind,
    )

    def objective(certificate: Certificate, neurons: torch.Tensor) -> np.longdouble:
        u, w = wide(neurons.numpy()), wide(certificate.point.numpy()).reshape(len(neurons), c)
        hidden = np.maximum(np.einsum("nd,kswd->nksw", wide(X), u.reshape(len(u), 2, width, d)), 0).sum(3)
        price = (np.sqrt((u**2).sum(1)) * np.sqrt((w**2).sum(1))).sum()
        return fit.value(problem.datafit, np.maximum(hidden[:, :, 0] - hidden[:, :, 1], 0) @ w) + problem.beta * price

    issued = Issued(told)
    try:
        done = ParallelTrainer(problem.X, width).train(problem, tol=1e-6, max_time=2 * _SECONDS)
        issued.certificates.append((done.solution.certificate, objective(done.solution.certificate, done.neurons)))
    except BREAKDOWNS as error:
        issued.refused = type(error).__name__
    yield issued
