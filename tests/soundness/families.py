"""ReLU networks of other kinds over all patterns: other norms, convolutions, attention, whitened data."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.certificate import Certificate, Scope, judge
from bidual.closed_form import ClosedForm, closed_form_demeaned
from bidual.column_generation import ColumnGeneration
from bidual.norms import NORMS
from bidual.patches import Convolution, ImagePatches
from bidual.patches.tokens import TokenPairs
from bidual.polar import DiagonalBound, Faces, NormFaces, Sphere, bound_near
from bidual.relu import ReluProblem
from bidual.relu_training import ReluTrainer
from oracles.explicit_readouts import Explicit, explicit_tokens, image_rows, pooled_readout, window_averages
from soundness.cases import BREAKDOWNS, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import LOSSES, relu_features, vector_norm, wide
from soundness.networks import Network, beta_for
from soundness.samples import KINDS, samples, targets

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
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, d, c = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X = samples(rng, kind, n, d, double=True)
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = ReluProblem(torch.from_numpy(X), fit.datafit, beta_for(rng, X, fit), hidden, output)
    network, oracle = Network(X, fit, problem), NormFaces(problem.X, hidden, output)
    issued = Issued(_told("relu", loss, kind, gauge=f"{hidden.name} and {output.name}"))
    for rounds in (2, 30):
        try:
            done = ColumnGeneration().train(problem, oracle, tol=1e-8, max_rounds=rounds, max_time=_SECONDS)
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        issued.certificates.append(network.of(done.solution.certificate, done.neurons))
    yield issued


def patches_case(rng: Generator) -> Iterator[Issued]:
    """ReLU networks on patches of signals with pooling, and heads of attention, for tokens or averaged."""
    kind, loss = str(rng.choice(list(KINDS))), str(rng.choice(list(LOSSES)))
    n, c = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    make = _attention if rng.random() < 0.5 else _convolution
    patches, explicit, name = make(rng, kind, n)
    fit = Fit.draw(rng, loss, targets(rng, loss, len(explicit.readout), c))
    problem = ReluProblem.on(patches, fit.datafit, 1.0)
    peak = problem.oracle(Faces).peaks(fit.datafit.grad(torch.zeros_like(fit.datafit.targets))).bracket.lower
    problem = problem.with_beta(single(share_of_beta_max(rng) * (peak or 1.0)))
    issued = Issued(_told(name, loss, kind))
    for rounds in (1, 30):
        oracles = (Faces, Sphere, lambda X: DiagonalBound(X, steps=5))
        oracle = problem.oracle(oracles[int(rng.integers(len(oracles)))])
        try:
            done = ColumnGeneration().train(problem, oracle, tol=1e-8, max_rounds=rounds, max_time=_SECONDS)
        except BREAKDOWNS as error:
            issued.refused = type(error).__name__
            continue
        certificate = done.solution.certificate
        objective = _objective(explicit, fit, problem, done.neurons.numpy(), certificate.point.numpy())
        issued.certificates.append((certificate, objective))
    yield issued


def _attention(rng: Generator, kind: str, n: int) -> tuple[TokenPairs, Explicit, str]:
    d, average = int(rng.integers(1, 3)), bool(rng.random() < 0.5)
    X = torch.from_numpy(samples(rng, kind, 2 * n, d, double=True)).reshape(n, 2, d)
    return TokenPairs(X, average), explicit_tokens(X, average), "relu attention"


def _convolution(rng: Generator, kind: str, n: int) -> tuple[ImagePatches, Explicit, str]:
    h, grid = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    X = torch.from_numpy(samples(rng, kind, n, h + 1, double=True))[:, None]
    patches = ImagePatches(X, Convolution.of(1, h, pooling=(grid,)))
    rows = image_rows(X, (h,), (1,), (0,), (1,))
    return patches, Explicit(rows, pooled_readout(window_averages((2,), (grid,)), n)), "relu convolution"


def _objective(explicit: Explicit, fit: Fit, problem: ReluProblem, neurons: ndarray, Z: ndarray) -> np.longdouble:
    """F(sum_j L[(X u_j)_+] Z_j) + beta sum_j |u_j| |Z_j|_F."""
    features = np.einsum("iar,rm->ima", wide(explicit.readout.numpy()), relu_features(explicit.rows.numpy(), neurons))
    price = (vector_norm(wide(neurons), 2.0) * np.sqrt((wide(Z) ** 2).sum((1, 2)))).sum()
    P = np.einsum("ima,mac->ic", features, wide(Z))
    return fit.value(problem.datafit, P) + problem.beta * price


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
    done = ReluTrainer(network.problem.X).train(network.problem, solver=most, tol=1e-9, max_time=_SECONDS)
    return network.of(done.solution.certificate, done.neurons)


def _demeaned(network: Network) -> tuple[Certificate, np.longdouble]:
    form: ClosedForm = closed_form_demeaned(network.problem)
    if not form.applies:
        raise ValueError(form.reason)
    master = network.problem.over(form.neurons)
    Z = (torch.linalg.vector_norm(form.neurons, dim=1, keepdim=True) * form.weights)[:, None]
    polar = bound_near(network.problem.X, form.dual_point, form.polar)
    return network.of(judge(master, Z, form.dual_point, polar, Scope.ALL_PATTERNS), master.operator.neurons)
