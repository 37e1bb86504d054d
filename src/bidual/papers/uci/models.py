"""The models of R13 (PR Table 3), one fit at a time: parallel networks by descent and by convex programs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor

from bidual.architectures import GatedParallel
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.decoding import SubNetworks
from bidual.papers.methods.parallel_descent import ParallelDescent
from bidual.papers.methods.penalty_descent import PenaltyDescent
from bidual.polar.subnetworks.base import copies
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.plan import beta_grid, solve_auto
from bidual.training.relu.plan import ReluPlan

Optimiser = Literal["sgd", "adam"]
RATES: Mapping[str, Sequence[float]] = {
    "sgd": (0.01, 0.03, 0.1, 0.3),
    "adam": (0.001, 0.003, 0.01, 0.03),
    "convex_sgd": (0.01, 0.05, 0.2, 1.0),
    "convex_adam": (0.01, 0.05, 0.2, 1.0),
}
_BETAS, _BETA_RATIO = 8, 1e-4
_INVERSE_BETAS = [0.01, 0.1, 1.0, 10.0, 100.0]
_INNER = 1000  # seeds of inner splits, apart from those of the outer ones


@dataclass(frozen=True)
class Settings:
    """(m_1, K, beta) are PR's, m_2 = 1; the rest is not stated there.

    Attributes:
        splits: random splits, 80% for training and 20%, rounded up, for testing.
        steps, max_epochs, min_steps: of a descent: whole epochs that make ``steps``, but no more epochs than these
            unless they make less than ``min_steps``.
        batch_size: of a descent.
        lam: lambda of the penalty form (PR eq. 11).
        tol: the certified relative gap of the gated model.
        relu_seconds: the time limit of column generation.
    """

    splits: int = 5
    n_networks: int = 40
    width: int = 100
    beta: float = 0.5
    steps: int = 600
    max_epochs: int = 120
    min_steps: int = 300
    batch_size: int = 32
    lam: float = 1e-5
    tol: float = 1e-4
    relu_seconds: float = 4.0

    def epochs(self, n: int) -> int:
        """Of a descent on n samples."""
        batches = math.ceil(n / self.batch_size)
        return max(min(math.ceil(self.steps / batches), self.max_epochs), math.ceil(self.min_steps / batches))


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test samples with labels +1 and -1, and the seed of everything random on them."""

    X: Float[Tensor, "n d"]
    y: Float[Tensor, "n 1"]
    X_test: Float[Tensor, "t d"]
    y_test: Float[Tensor, "t 1"]
    seed: int

    @classmethod
    def draw(cls, X: Tensor, y: Tensor, seed: int, order: int | None = None) -> "Split":
        """A random fifth for testing; ``order`` is the seed of the permutation if it is not ``seed``."""
        mixed = torch.Generator().manual_seed(seed if order is None else order)
        test, train = torch.randperm(len(X), generator=mixed).tensor_split([math.ceil(len(X) / 5)])
        return cls(X[train], y[train], X[test], y[test], seed)

    @property
    def inner(self) -> "Split":
        """The training part, split once more for validation."""
        return Split.draw(self.X, self.y, self.seed, _INNER + self.seed)

    def cells(self, settings: Settings) -> SubNetworkGates:
        generator = torch.Generator().manual_seed(self.seed)
        return SubNetworkGates.sample(self.X.shape[1], settings.n_networks, settings.width, generator)


class Fit(NamedTuple):
    """Outputs of a trained model, its objective and its certified gap."""

    train: Float[Tensor, "n 1"]
    test: Float[Tensor, "t 1"]
    objective: float | None = None
    gap: float | None = None
    choice: float | None = None

    def failed(self, split: Split, scaling: str) -> bool:
        """Whether a descent ended above the zero network, at 1/2 for each sample."""
        zero = 0.5 if scaling == "mean" else 0.5 * len(split.X)
        return self.objective is None or not self.objective <= zero

    def rank(self, split: Split, scaling: str) -> tuple[bool, float, float]:
        """What tuning prefers: not failed, then the accuracy on held-out samples, then the objective."""
        objective = math.inf if self.objective is None else self.objective
        return not self.failed(split, scaling), accuracy(self.test, split.y_test), -objective


Fitter = Callable[[Split, Settings, str, float], Fit]


def accuracy(outputs: Float[Tensor, "n 1"], y: Float[Tensor, "n 1"]) -> float:
    """The share of outputs on the side of the label."""
    return float(((outputs > 0) == (y > 0)).double().mean())


class _Unrecorded(ParallelDescent):
    """Without the objective on the way, which takes longer than the steps of an epoch."""

    @property
    def _every(self) -> int:
        return self.epochs


def _non_convex(optimiser: Optimiser, split: Split, settings: Settings, scaling: str, rate: float) -> Fit:
    """PR (4); the learning rate of SGD is for the mean, the sum takes 1/n of it."""
    n, mean = len(split.X), scaling == "mean"
    method = _Unrecorded(
        settings.n_networks,
        settings.width,
        optimiser,
        rate if mean or optimiser == "adam" else rate / n,
        settings.epochs(n),
        batch_size=settings.batch_size,
        mean=mean,
    )
    runs = method.run(split.X.float(), split.y.float(), settings.beta, [split.seed])
    network = runs.network(0).requires_grad_(False)
    return Fit(network(split.X), network(split.X_test), float(runs.final[0]), choice=rate)


def _penalty(optimiser: Optimiser, split: Split, settings: Settings, scaling: str, rate: float) -> Fit:
    """PR (11)."""
    method = PenaltyDescent(
        optimiser,
        rate,
        settings.epochs(len(split.X)),
        batch_size=settings.batch_size,
        mean=scaling == "mean",
        lam=settings.lam,
    )
    X, y = split.X.float(), split.y.float()
    run = method.run(split.cells(settings).to(X), X, y, settings.beta, split.seed)
    return Fit(run.outputs(X), run.outputs(split.X_test), run.objective, choice=rate)


def _exact(split: Split, settings: Settings, scaling: str, rate: float) -> Fit:
    """PR (11) without its constraints, to a certified gap; a mean over n samples is a sum at n beta, over n."""
    unit = len(split.X) if scaling == "mean" else 1
    fit = _gated(split, settings, unit * settings.beta)
    return fit._replace(objective=(fit.objective or 0.0) / unit, choice=None)


def _gated(split: Split, settings: Settings, beta: float) -> Fit:
    family = GatedParallel(split.cells(settings))
    problem = Problem(family.lift(split.X, 1), Datafit(Squared(), split.y), family.gauge(), beta)
    found = solve_auto(problem, Limits(settings.tol))
    module = family.decode(found.Z).requires_grad_(False)
    certificate = found.certificate
    return Fit(module(split.X), module(split.X_test), certificate.primal, certificate.relative_gap, beta)


def _gated_tuned(split: Split, settings: Settings, scaling: str, rate: float) -> Fit:
    """The gated model at the beta whose held-out accuracy is best, then whose held-out squared loss is least."""
    inner = split.inner
    family = GatedParallel(split.cells(settings))
    top = family.gauge().polar(family.lift(split.X, 1).adjoint(split.y)).upper
    fits = [_gated(inner, settings, beta) for beta in beta_grid(0.5 * top, _BETAS, _BETA_RATIO)]
    losses = [float((fit.test - inner.y_test).square().mean()) for fit in fits]
    best = max(range(_BETAS), key=lambda k: (accuracy(fits[k].test, inner.y_test), -losses[k]))
    return _gated(split, settings, fits[best].choice or 0.0)


def _relu(split: Split, settings: Settings, scaling: str, rate: float) -> Fit:
    """A real parallel network: copies of a two-layer network at beta / sqrt(m_1), same objective (PR eq. 4)."""
    unit, root = len(split.X) if scaling == "mean" else 1, math.sqrt(settings.width)
    problem = ReluProblem(split.X, Datafit(Squared(), split.y), unit * settings.beta / root)
    two = ReluPlan(split.X, seed=split.seed).train(problem, Limits(1e-3, max_time=settings.relu_seconds), prove=False)
    parts = SubNetworks(copies(two.neurons, settings.width), two.Z / root)
    module = parts.decode(settings.width).requires_grad_(False)
    return Fit(module(split.X), module(split.X_test), two.certificate.primal / unit)


def _searched(
    make: Callable[[], SVC | LogisticRegression],
    grid: Mapping[str, Sequence[float | str]],
    split: Split,
    settings: Settings,
    scaling: str,
    rate: float,
) -> Fit:
    """A classifier of scikit-learn, with an intercept, at the best of a grid by three folds."""
    folds = StratifiedKFold(3, shuffle=True, random_state=split.seed)
    search = GridSearchCV(make(), dict(grid), cv=folds).fit(split.X.numpy(), split.y[:, 0].numpy())
    train, test = (_column(search.decision_function(X.numpy())) for X in (split.X, split.X_test))
    return Fit(train, test, choice=float(search.best_params_["C"]))


def _column(values: NDArray[np.float64]) -> Float[Tensor, "n 1"]:
    return torch.from_numpy(values)[:, None]


METHODS: Mapping[str, Fitter] = {
    "sgd": partial(_non_convex, "sgd"),
    "adam": partial(_non_convex, "adam"),
    "convex_sgd": partial(_penalty, "sgd"),
    "convex_adam": partial(_penalty, "adam"),
    "exact": _exact,
    "relu": _relu,
    "gated_tuned": _gated_tuned,
    "svc": partial(_searched, SVC, {"C": [0.1, 1.0, 10.0, 100.0], "gamma": ["scale", 0.001, 0.01, 0.1]}),
    "logistic": partial(_searched, partial(LogisticRegression, max_iter=2000), {"C": _INVERSE_BETAS}),
}
TUNED = ("gated_tuned", "svc", "logistic")
