"""Problems for the copositive program: plain, degenerate and spike-free data, and their exact optima."""

import math

import numpy as np
import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces, steepness
from bidual.problems.certificate import Certificate
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.copositive import Relaxed
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal


def white(n: int, d: int, seed: int = 0) -> Tensor:
    """X X^T = I."""
    return torch.linalg.qr(normal(d, n, seed=seed))[0].T


def inverse_m(n: int, seed: int = 0) -> Tensor:
    """Rows whose Gram matrix is the inverse of an M-matrix: spike-free, not orthogonal."""
    off = -normal(n, n, seed=seed).abs()
    off = (off + off.T).fill_diagonal_(0)
    return torch.linalg.cholesky(torch.linalg.inv(off - torch.diag(1.2 * off.sum(1) - 0.1)))


def umbrella() -> ReluProblem:
    """Five rows in space for which (19) is not tight, although CP says it is for d <= 4 (notes, section 6)."""
    z, angle = 1 / math.sqrt(5), torch.arange(5, dtype=torch.float64) * (2 * math.pi / 5)
    side = math.sqrt(1 - z)
    X = torch.stack([side * angle.cos(), side * angle.sin(), torch.full_like(angle, math.sqrt(z))], 1)
    Y = [[0, 1.0685], [-1.0162, 0.3302], [-0.628, -0.8644], [0.628, -0.8644], [1.0162, 0.3302]]
    return squared(X, torch.tensor(Y, dtype=torch.float64), 0.7383)


def squared(X: Tensor, Y: Tensor, beta: float, *, weight: Tensor | None = None, intercept: bool = False) -> ReluProblem:
    return ReluProblem(X, Datafit(Squared(), Y, weight, intercept), beta)


def exact(problem: ReluProblem, tol: float = 1e-9) -> Certificate:
    """The optimum over all patterns; its primal is that of an explicit network."""
    done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(tol, max_time=20))
    return done.certificate


def steepest(problem: ReluProblem, V: Tensor) -> float:
    """A neuron's |V^T (X u)_+| / |u|: the best that an exact oracle and many directions find."""
    rows = problem.X / (float(problem.X.abs().max()) if problem.X.any() else 1.0)
    many = torch.cat([normal(300, problem.X.shape[1], seed=9), rows, -rows])
    return max(Faces(problem.X).steepest(V).bracket.lower, float(steepness(problem.X, V, many).max()))


def excess(problem: ReluProblem, found: Relaxed, primal: float) -> float:
    """By how much the relaxation claims too much, of the optimum or of the polar, relatively; never positive."""
    steep = steepest(problem, found.V)
    too_high = (found.dual - primal) / max(primal, 1e-300)
    return max(too_high, (steep - found.polar) / steep if steep > 0 else too_high)


_KINDS = ("plain", "plain", "repeated", "opposite", "zero", "grid", "lengths", "near", "wide", *["spike-free"] * 4)


def random_problem(seed: int) -> ReluProblem:
    """Ranks 1 to 5, up to ten samples, up to three outputs; rows tied, tiny, nearly parallel or spike-free."""
    rng = np.random.default_rng(seed)
    n, r, c, kind = int(rng.integers(1, 11)), int(rng.integers(1, 6)), int(rng.integers(1, 4)), rng.choice(_KINDS)
    X = torch.from_numpy(_spike_free(rng, min(n, 6)) if kind == "spike-free" else _samples(rng, n, r, kind))
    weight = torch.from_numpy(10 ** rng.uniform(-2, 2, len(X))) if rng.random() < 0.3 else None
    Y = torch.from_numpy(rng.standard_normal((len(X), c)))
    problem = squared(X, Y, 1.0, weight=weight, intercept=bool(rng.random() < 0.4))
    return problem.with_beta(float(rng.choice([1e-4, 1e-2, 0.1, 0.5, 0.95, 2.0])) * (_largest_beta(problem) or 1.0))


def _largest_beta(problem: ReluProblem) -> float:
    data = problem.datafit
    peak = Faces(problem.X).steepest(data.into_domain(data.grad(torch.zeros_like(data.targets)))).bracket.lower
    return peak if peak > 1e-12 * float(torch.linalg.matrix_norm(problem.X)) * data.scale**0.5 else 0.0


def _samples(rng: np.random.Generator, n: int, r: int, kind: str) -> np.ndarray:
    X = rng.standard_normal((n, r))
    match kind:
        case "repeated":
            return X[np.arange(n) % max(n // 2, 1)]
        case "opposite":
            return np.concatenate([X, -X[: n // 2]])
        case "zero":
            return np.where(np.arange(n)[:, None] % 3 == 0, 0.0, X)
        case "grid":
            return np.round(X)
        case "lengths":
            return X * 10 ** rng.uniform(-6, 6, (n, 1))
        case "near":
            return np.concatenate([X, X[: n // 2] + 10 ** rng.uniform(-12, -3) * rng.standard_normal((n // 2, r))])
        case "wide":
            return X @ rng.standard_normal((r, r + n))
    return X


def _spike_free(rng: np.random.Generator, n: int) -> np.ndarray:
    seed, lengths = int(rng.integers(1000)), 10 ** rng.uniform(-2, 2, (n, 1))
    match rng.integers(4):
        case 0:
            return white(n, n + int(rng.integers(3)), seed).numpy()
        case 1:
            return np.asarray(lengths * np.eye(n))
        case 2:
            return np.asarray(lengths * inverse_m(n, seed).numpy())
    return np.asarray((lengths * white(n, n, seed).numpy())[rng.integers(0, n, n + 2)])
