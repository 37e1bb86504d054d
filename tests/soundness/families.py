"""ReLU networks of other kinds over all patterns: other norms, convolutions, attention, whitened data."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.numerics.norms import NORMS
from bidual.operators.patches import Convolution, ImagePatches
from bidual.operators.patches.tokens import TokenPairs
from bidual.papers.methods.demeaned_form import closed_form_demeaned
from bidual.papers.methods.norm_oracles import NormFaces
from bidual.polar import DiagonalBound, Faces, Sphere, bound_near
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, neurons_of
from bidual.solvers.driver import solve
from bidual.training.relu.closed_form import ClosedForm
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.plan import ReluPlan
from oracles.explicit_readouts import explicit_tokens, image_rows, pooled_readout, window_averages
from soundness.cases import BREAKDOWNS, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import LOSSES, relu_features, token_rows, vector_norm, wide
from soundness.networks import Network, beta_for, reference
from soundness.samples import kind_of, samples, targets

_SECONDS = 0.5


def _told(architecture: str, loss: str, data: str, solver: str = "column_generation", gauge: str = "weight decay"):
    return labels(
        architecture=architecture,
        loss=loss,
        gauge=gauge,
        solver=solver,
        dtype=torch.float64,
        scope="ALL_PATTERNS",
        data=data,
    )


def norm_case(rng: Generator) -> Iterator[Issued]:
    """Other norms on the two layers."""
    hidden, output = (NORMS[str(name)] for name in rng.choice(list(NORMS), 2))
    kind, loss = kind_of(rng, double=True), str(rng.choice(list(LOSSES)))
    n, d, c = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X = samples(rng, kind, n, d, double=True)
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, beta_for(rng, X, fit), hidden, output)
    network, oracle = Network(X, fit, problem), NormFaces(problem.X, hidden, output)
    known = [network.objective(u, w) for u, w in reference(rng, X, fit, problem.beta)]
    issued = Issued(_told("relu", loss, kind, gauge=f"{hidden.name} and {output.name}"), attained=known)
    for rounds in (2, 30):
        try:
            done = solve(problem, ColumnGeneration(oracle), Limits(1e-8, rounds, max_time=_SECONDS))
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        issued.certificates.append(network.of(done.certificate, done.problem))
    yield issued


def patches_case(rng: Generator) -> Iterator[Issued]:
    """ReLU networks on patches of signals with pooling, and heads of attention, for tokens or averaged."""
    kind, loss = kind_of(rng, double=True), str(rng.choice(list(LOSSES)))
    n, c = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    make = _attention if rng.random() < 0.5 else _convolution
    patches, rows, readout = make(rng, kind, n)
    fit = Fit.draw(rng, loss, targets(rng, loss, len(readout), c))
    problem = ReluProblem.on(patches, fit.datafit, 1.0)
    peak = problem.oracle(Faces).steepest(fit.datafit.grad(torch.zeros_like(fit.datafit.targets))).bracket.lower
    problem = problem.with_beta(single(share_of_beta_max(rng) * (peak or 1.0)))
    nothing = torch.zeros_like(fit.datafit.targets)
    zero = fit.value(problem.datafit, wide(nothing.numpy()), nothing)
    issued = Issued(_told(f"relu {make.__name__.strip('_')}", loss, kind), attained=[zero])
    for rounds in (1, 30):
        oracles = (Faces, Sphere, lambda X: DiagonalBound(X, steps=5))
        oracle = problem.oracle(oracles[int(rng.integers(len(oracles)))])
        try:
            done = solve(problem, ColumnGeneration(oracle), Limits(1e-8, rounds, max_time=_SECONDS))
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        certificate = done.certificate
        features = np.einsum("iar,rm->ima", readout, relu_features(rows, done.neurons.numpy()))
        issued.certificates.append((certificate, _objective(features, fit, done.problem, certificate.point)))
    yield issued


def _attention(rng: Generator, kind: str, n: int) -> tuple[TokenPairs, ndarray, ndarray]:
    """With the rows and the readout in extended precision."""
    d, average = int(rng.integers(1, 3)), bool(rng.random() < 0.5)
    X = torch.from_numpy(samples(rng, kind, 2 * n, d, double=True)).reshape(n, 2, d)
    return TokenPairs(X, average), token_rows(X.numpy()), wide(explicit_tokens(X, average).readout.numpy())


def _convolution(rng: Generator, kind: str, n: int) -> tuple[ImagePatches, ndarray, ndarray]:
    h, grid = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    X = torch.from_numpy(samples(rng, kind, n, h + 1, double=True))[:, None]
    patches = ImagePatches(X, Convolution.of(1, h, pooling=(grid,)))
    rows, readout = image_rows(X, (h,), (1,), (0,), (1,)), pooled_readout(window_averages((2,), (grid,)), n)
    return patches, wide(rows.numpy()), wide(readout.numpy())


def _objective(features: ndarray, fit: Fit, master: Problem, point: torch.Tensor) -> np.longdouble:
    """F(sum_j L[(X u_j)_+] Z_j) + beta sum_j |u_j| |Z_j|_F."""
    Z, lengths = wide(point.numpy()), vector_norm(wide(neurons_of(master).numpy()), 2.0)
    P, seen = np.einsum("ima,mac->ic", features, Z), master.operator.forward(point)
    return fit.value(master.datafit, P, seen) + master.beta * (lengths * np.sqrt((Z**2).sum((1, 2)))).sum()


def whitened_case(rng: Generator) -> Iterator[Issued]:
    """Orthogonal rows, up to a hundred of them: closed forms, the relaxation for spike-free data, and bounds."""
    n = int(np.ceil(100 ** rng.uniform(0, 1)))
    demeaned = bool(n > 2 and rng.random() < 0.3)
    Q = np.linalg.qr(rng.standard_normal((n + int(rng.integers(0, 3)), n)))[0].T
    X = (Q - Q.mean(0) if demeaned else Q) * 2.0 ** int(rng.integers(-40, 41)) * rng.uniform(1, 2)
    X = X * (1 + 10.0 ** rng.uniform(-16, -9) * rng.standard_normal(X.shape))
    Y = _labels(rng, n)
    fit = Fit("squared", Y, None, False)
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, 1.0)
    peak = float(np.linalg.norm(X.T @ Y, 2))
    problem = problem.with_beta(single(share_of_beta_max(rng) * peak))
    network, solver = Network(X, fit, problem), str(rng.choice(["closed_form", "auto", "copositive"]))
    issued = Issued(_told("relu", "squared", "de-meaned" if demeaned else "whitened", solver))
    issued.attained = [network.objective(np.zeros((1, X.shape[1])), np.zeros((1, Y.shape[1])))]
    try:
        issued.certificates = [_demeaned(network)] if demeaned else [_by_formula(network, solver, n)]
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
    yield issued


def _labels(rng: Generator, n: int) -> ndarray:
    """One-hot, of one output, or any."""
    c = int(rng.integers(1, 5))
    kind = rng.random()
    if kind < 0.4:
        return np.eye(c)[rng.integers(0, c, n)] * rng.uniform(0.1, 10, c)
    return rng.standard_normal((n, 1 if kind < 0.7 else c))


def _by_formula(network: Network, solver: str, n: int) -> tuple[Certificate, np.longdouble]:
    most = "closed_form" if n > 12 and solver == "copositive" else solver  # a step of it costs the cube of n
    done = ReluPlan(network.problem.X).train(network.problem, Limits(1e-9, max_time=_SECONDS), solver=most)
    return network.of(done.certificate, done.problem)


def _demeaned(network: Network) -> tuple[Certificate, np.longdouble]:
    form: ClosedForm = closed_form_demeaned(network.problem)
    if not form.applies:
        raise ValueError(form.reason)
    master = network.problem.restricted_to(form.neurons)
    Z = (torch.linalg.vector_norm(form.neurons, dim=1, keepdim=True) * form.weights)[:, None]
    polar = bound_near(network.problem.X, form.dual_point, form.polar)
    return network.of(judge(master, Z, form.dual_point, polar, Scope.ALL_PATTERNS), master)
