"""Losses and conjugates against 60 digits, and repairs of dual points carried out in them."""

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from mpmath import mpf
from torch import Tensor

from bidual.losses import LOSSES, Softmax
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import gamma
from bidual.testing import example_targets
from helpers.draws import normal

mpmath.mp.dps = 60
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)


def exact(row: Tensor) -> list[mpf]:
    return [mpf(x) for x in row.tolist()]


def xlogx(x: mpf) -> mpf:
    return x * mpmath.log(x) if x else mpf(0)


VALUES: dict[str, Callable[[mpf, mpf], mpf]] = {
    "squared": lambda p, y: (p - y) ** 2 / 2,
    "absolute": lambda p, y: abs(p - y),
    "huber": lambda p, y: (p - y) ** 2 / 2 if abs(p - y) <= 1 else abs(p - y) - mpf(1) / 2,
    "quantile": lambda p, y: abs(p - y) / 2,
    "poisson": lambda p, y: mpmath.exp(p) - y * p + xlogx(y) - y,
    "hinge": lambda p, y: max(1 - y * p, mpf(0)),
    "squared_hinge": lambda p, y: max(1 - y * p, mpf(0)) ** 2 / 2,
    "logistic": lambda p, y: mpmath.log1p(mpmath.exp(-y * p)),
}
CONJUGATES: dict[str, Callable[[mpf, mpf], mpf]] = {
    "squared": lambda v, y: v**2 / 2 + v * y,
    "absolute": lambda v, y: v * y,
    "huber": lambda v, y: v**2 / 2 + v * y,
    "quantile": lambda v, y: v * y,
    "poisson": lambda v, y: xlogx(v + y) - v - xlogx(y),
    "hinge": lambda v, y: y * v,
    "squared_hinge": lambda v, y: v**2 / 2 + y * v,
    "logistic": lambda v, y: xlogx(-y * v) + xlogx(1 + y * v),
}


def value(name: str, p: list[mpf], y: list[mpf]) -> mpf:
    if name == "softmax":
        own = sum(a * b for a, b in zip(p, y, strict=True))
        others = sum(mpmath.exp(a - own) for a, b in zip(p, y, strict=True) if not b)
        return mpmath.log1p(others)
    return sum(VALUES[name](a, b) for a, b in zip(p, y, strict=True))


def conjugate(name: str, v: list[mpf], y: list[mpf]) -> mpf:
    """Of softmax at the row whose own class takes what the sum lacks to zero."""
    if name == "softmax":
        others = [a for a, b in zip(v, y, strict=True) if not b]
        return sum(map(xlogx, others)) + xlogx(1 - sum(others))
    return sum(CONJUGATES[name](a, b) for a, b in zip(v, y, strict=True))


@EVERY_LOSS
@pytest.mark.parametrize("c", [2, 3, 40])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 40.0, 700.0])
def test_values_are_right_to_their_roundings_and_those_of_the_predictions(name: str, c: int, scale: float) -> None:
    loss = LOSSES[name]()
    Y = example_targets(loss, 12, c, torch.Generator().manual_seed(c))
    P = scale * normal(12, c, seed=c) if scale != 40.0 else 40 * Y  # the right class far ahead
    found, slopes = loss.value(P, Y), torch.linalg.vector_norm(loss.grad(P, Y), dim=1)
    for p, y, near, slope in zip(P, Y, found.tolist(), slopes.tolist(), strict=True):
        real = value(name, exact(p), exact(y))
        moved = gamma(3) * float(p.norm() + y.norm()) * (1.001 * slope + float(p.norm()) * gamma(4))
        assert abs(mpf(near) - real) <= gamma(c + 15) * real + mpf(moved) + mpf(1e-300)


@EVERY_LOSS
@pytest.mark.parametrize("c", [2, 5, 40])
@pytest.mark.parametrize("kind", ["inside", "tiny", "at the border"])
def test_conjugates_are_right_to_the_roundings_of_their_terms(name: str, c: int, kind: str) -> None:
    loss = LOSSES[name]()
    Y = example_targets(loss, 12, c, torch.Generator().manual_seed(c))
    w = 10 ** normal(12, 1, seed=7)
    V = normal(12, c, seed=c) * {"inside": 1.0, "tiny": 1e-30, "at the border": 1e3}[kind]
    V = w * loss.into_domain(V, Y) * (1 - gamma(64 + 8 * c))
    found, terms = w[:, 0] * loss.conjugate(V / w, Y), w[:, 0] * loss.terms(V / w, Y)
    for v, y, weight, near, size in zip(V, Y, w[:, 0].tolist(), found.tolist(), terms.tolist(), strict=True):
        real = weight * conjugate(name, [a / mpf(weight) for a in exact(v)], exact(y))
        assert abs(mpf(near) - real) <= gamma(c + 14) * size


@pytest.mark.parametrize("c", [2, 4])
def test_an_own_class_that_is_not_surely_positive_has_no_repair(c: int) -> None:
    """The sum of the others was clamped to one, and log(1 - s) of a sum that rounds to less than one was believed."""
    Y = torch.eye(c, dtype=torch.float64)
    V = torch.full((c, c), 1 / (c - 1), dtype=torch.float64) * (1 - Y) - Y
    weight = torch.ones(c, 1, dtype=torch.float64)
    for inside, finite in ((1.0, False), (1 - 2.0**-53, False), (1 - gamma(64 + 8 * c), True)):
        assert math.isfinite(Softmax().repair(inside * V, Y, weight, False).cost) == finite
    assert Softmax().repair(-1e-20 * V, Y, weight, False).cost == math.inf  # negative probabilities


def repaired(V: Tensor, Y: Tensor, weight: Tensor) -> tuple[list[list[mpf]], mpf]:
    """The point that :meth:`Softmax.repair` speaks of, and its conjugate."""
    W, (n, c) = [exact(row) for row in V], V.shape
    own = Y.argmax(1).tolist()
    for row, k in zip(W, own, strict=True):
        row[k] -= sum(row)
    sums = [sum(row[k] for row in W) for k in range(c)]
    w = exact(weight[:, 0])
    senders = [max((i for i in range(n) if own[i] == k), key=lambda i: w[i]) for k in range(c)]
    shrink = 1 - sum(map(abs, sums)) / min(w[i] for i in senders)
    W = [[shrink * x for x in row] for row in W]
    surplus = {k: shrink * s for k, s in enumerate(sums) if s > 0}
    lacks = {k: -shrink * s for k, s in enumerate(sums) if s < 0}
    for k, much in surplus.items():
        sender = senders[k]
        for to in lacks:
            sent = min(much, lacks[to])
            W[sender][to], W[sender][k] = W[sender][to] + sent, W[sender][k] - sent
            lacks[to], much = lacks[to] - sent, much - sent
    assert max(abs(sum(row[k] for row in W)) for k in range(c)) <= mpf(10) ** -50
    probabilities = [[x / w[i] + (k == own[i]) for k, x in enumerate(row)] for i, row in enumerate(W)]
    assert min(map(min, probabilities)) >= 0
    return W, sum(w[i] * xlogx(max(q, mpf(0))) for i, row in enumerate(probabilities) for q in row)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1e-15, 4e-15])
@pytest.mark.parametrize("seed", range(4))
def test_a_repaired_softmax_dual_is_as_near_and_as_good_as_promised(seed: int, noise: float, weighted: bool) -> None:
    c = 2 + seed
    Y = torch.eye(c, dtype=torch.float64).repeat(4, 1)
    weight = 10 ** normal(4 * c, seed=seed) if weighted else None
    fit = Datafit(Softmax(), Y, weight, True)
    V = fit.into_domain(fit.grad(5 * normal(4 * c, c, seed=seed))) * (1 - gamma(64 + 8 * c))
    V = V * (1 + noise * normal(4 * c, c, seed=seed + 1))
    dual, distance = fit.dual_lower_bound(V)
    W, real = repaired(V, Y, fit.weights)
    moved = mpmath.sqrt(
        sum((a - b) ** 2 for one, two in zip(W, V, strict=True) for a, b in zip(one, exact(two), strict=True))
    )
    assert moved <= mpf(distance)
    assert mpf(dual) <= -real
    assert -real - dual <= (3e-12 + 1e3 * noise) * float(fit.weights.sum())
