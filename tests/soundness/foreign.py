"""Networks that were trained elsewhere: lower bounds of what any network could do, and their own objectives."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from sklearn.neural_network import MLPRegressor
from torch import nn

from bidual.estimators.certifying import certify
from bidual.losses import LOSSES as PACKAGE_LOSSES
from bidual.losses.datafit import Datafit
from soundness.cases import BREAKDOWNS, Bound, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import LOSSES, relu_features, wide
from soundness.networks import beta_for, reference
from soundness.samples import kind_of, samples, targets

_SECONDS = 0.4
_STEPS = (0, 30, 150)  # of Adam
_ROUNDING = np.longdouble(2.0) ** -50


@dataclass(frozen=True)
class Weights:
    """x -> W (U x + a)_+ + b; ``hidden`` has the bias a as its last column where there is one."""

    hidden: ndarray
    output: ndarray
    bias: ndarray

    @classmethod
    def of(cls, module: nn.Module, hidden_bias: bool = True) -> "Weights":
        first, last = (layer for layer in module.modules() if isinstance(layer, nn.Linear))
        a, b = (None if bias is None else bias.detach().double().numpy() for bias in (first.bias, last.bias))
        U, W = (layer.weight.detach().double().numpy() for layer in (first, last))
        return cls(
            U if a is None or not hidden_bias else np.column_stack([U, a]), W, np.zeros(len(W)) if b is None else b
        )


@dataclass(frozen=True)
class Judge:
    """Objectives in extended precision: losses, and half of beta times the squares of all that is decayed.

    ``free`` says whether the last column of hidden weights is a bias that is not, ``output`` whether the output bias
    is.
    """

    X: ndarray
    fit: Fit
    beta: float
    free: bool = False
    output: bool = False

    def objective(self, weights: Weights) -> np.longdouble:
        hidden = weights.hidden[:, :-1] if self.free else weights.hidden
        parts = [hidden, weights.output, *([weights.bias] if self.output else [])]
        decay = sum((wide(part) ** 2).sum() for part in parts) / 2
        return self.fit.value_at(self._outputs(weights), self._targets) + wide(self.beta) * decay

    def _outputs(self, weights: Weights) -> np.ndarray:
        return relu_features(self.X, wide(weights.hidden)) @ wide(weights.output).T + wide(weights.bias)

    def allowed(self, weights: Weights) -> np.longdouble:
        """What rounding in double precision can change of the objective, about."""
        size = np.abs(wide(self.X)) @ np.abs(wide(weights.hidden)).T @ np.abs(wide(weights.output)).T
        size = size + np.abs(wide(weights.bias)) + np.abs(wide(self.fit.Y)) + 1
        error = (weights.hidden.size + 64) * _ROUNDING * size
        steep = np.exp(self._outputs(weights)) if self.fit.loss == "poisson" else wide(0.0)  # its slope grows like it
        return (error * (size + error + steep)).sum() * (1 + wide(self.fit.delta)) + 1e-12 * self.objective(weights)

    @property
    def _targets(self) -> Datafit:
        return Datafit(PACKAGE_LOSSES[self.fit.loss](), torch.from_numpy(self.fit.Y))


def foreign_case(rng: Generator) -> Iterator[Issued]:
    """One network as it is, and with layers scaled against each other."""
    loss, double = str(rng.choice(list(LOSSES))), bool(rng.random() < 0.5)
    kind = kind_of(rng, double)
    n, d, c = int(rng.integers(1, 9)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    hidden_bias, output_bias = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    X, Y = samples(rng, kind, n, d, double), targets(rng, loss, n, c)
    fit = Fit(loss, Y, None, output_bias)
    seen = np.column_stack([X, np.ones(n)]) if hidden_bias else X
    beta = beta_for(rng, seen, fit) if rng.random() < 0.7 else single(share_of_beta_max(rng))
    module, source = _network(rng, X, Y, beta, loss, hidden_bias, output_bias)
    module = module.double() if double else module.float()
    word = rng.choice(["hidden", "output", True, False]) if rng.random() < 0.5 else "hidden"
    word = word if word in ("hidden", "output") else word == "True"
    judge = Judge(seen, fit, beta, hidden_bias and word in ("output", False), word in ("output", True))
    known = _by_cvxpy(rng, judge)
    for power in (0, int(rng.integers(-60, 61))):
        told = labels(
            architecture="network from elsewhere",
            loss=loss,
            gauge="weight decay" if word == "hidden" else f"weight decay, decayed_bias={word}",
            solver=source,
            dtype=next(module.parameters()).dtype,
            scope="ALL_PATTERNS",
            data=kind,
        )
        yield _issued(rng, told, judge, _scaled(module, power), X, known, word)


def _network(
    rng: Generator, X: ndarray, Y: ndarray, beta: float, loss: str, hidden_bias: bool, output_bias: bool
) -> tuple[nn.Sequential, str]:
    """Drawn, trained by Adam, or by scikit-learn."""
    m, steps = int(rng.integers(1, 7)), int(rng.choice(_STEPS))
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    layers = nn.Linear(X.shape[1], m, bias=hidden_bias), nn.Linear(m, Y.shape[1], bias=output_bias)
    module = nn.Sequential(layers[0], nn.ReLU(), layers[1]).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    if hidden_bias and output_bias and loss == "squared" and rng.random() < 0.5 and np.abs(X).max() < 1e6:
        return _by_scikit(module, X, Y, m), "scikit-learn"
    _descend(module, torch.from_numpy(X), torch.from_numpy(Y), beta, steps)
    return module, "adam" if steps else "none"


def _by_scikit(module: nn.Sequential, X: ndarray, Y: ndarray, m: int) -> nn.Sequential:
    fitted = MLPRegressor(hidden_layer_sizes=(m,), solver="lbfgs", max_iter=40, random_state=0).fit(
        X, Y if Y.shape[1] > 1 else Y[:, 0]
    )
    with torch.no_grad():
        for layer, weight, bias in zip((module[0], module[2]), fitted.coefs_, fitted.intercepts_, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T))  # type: ignore[union-attr, operator]
            layer.bias.copy_(torch.from_numpy(bias))  # type: ignore[union-attr, operator]
    return module


def _descend(module: nn.Sequential, X: torch.Tensor, Y: torch.Tensor, beta: float, steps: int) -> None:
    """Squared loss whatever the loss: any network will do."""
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        decay = sum(p.square().sum() for p in module.parameters())
        (0.5 * (module(X) - Y).square().sum() + 0.5 * min(beta, 1e6) * decay).backward()
        optimiser.step()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.nan_to_num_()


def _scaled(module: nn.Sequential, power: int) -> nn.Sequential:
    """Hidden weights times two to a power, output weights divided by it: the same predictions."""
    first, last = module[0], module[2]
    made = nn.Sequential(*(nn.Linear(k.in_features, k.out_features, k.bias is not None) for k in (first, last)))
    made = nn.Sequential(made[0], nn.ReLU(), made[1]).to(next(module.parameters()).dtype)
    made.load_state_dict(module.state_dict())
    with torch.no_grad():
        for parameter in made[0].parameters():
            parameter.mul_(2.0**power)
        made[2].weight.mul_(2.0**-power)  # type: ignore[operator, union-attr]
    return made


def _issued(
    rng: Generator,
    told: dict[str, str],
    judge: Judge,
    module: nn.Sequential,
    X: ndarray,
    known: Weights,
    word: str | bool,
) -> Issued:
    given = Weights.of(module)
    others = [replace(given, output=0 * given.output), known]
    issued = Issued(told, attained=[judge.objective(weights) for weights in (given, *others)])
    fit, tol = judge.fit, float(rng.choice([1e-2, 1e-8]))
    try:
        found = certify(module, X, fit.Y, judge.beta, fit.loss, tol=tol, max_time=_SECONDS, decayed_bias=word)
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
        return issued
    own, allowed = judge.objective(given), judge.allowed(given)
    claimed = replace(found.certificate, primal=float(found.objective + allowed), dual=found.lower_bound)
    issued.certificates = [(claimed, own)]
    if own + allowed < np.finfo(np.float64).max:  # beyond, it is infinite, as it should be
        issued.bounds = [Bound("objective of a network", own + allowed, np.longdouble(found.objective))]
    if found.better is not None:
        better = Weights.of(found.better, bool(module[0].bias is not None))  # type: ignore[union-attr]
        reached, allowed = judge.objective(better), judge.allowed(better)
        issued.certificates.append(
            (replace(found.certificate, primal=float(found.better_objective + allowed)), reached)
        )
    return issued


def _by_cvxpy(rng: Generator, judge: Judge) -> Weights:
    """The best network over a few neurons, balanced."""
    units, weights = reference(rng, judge.X, judge.fit, judge.beta)[0]
    size = np.sqrt(np.linalg.norm(weights[:, 0], axis=1))[:, None]
    bias = np.zeros(weights.shape[2])
    if judge.fit.intercept:
        data = judge.fit.datafit
        P = torch.from_numpy(np.maximum(judge.X @ units.T, 0) @ weights[:, 0])
        bias = (data.offset(P) + data.shift).numpy()
    return Weights(units * size, (weights[:, 0] / np.maximum(size, 1e-300)).T, bias)
