"""What every loss and every data term promise."""

from functools import partial

import torch
from scipy.optimize import minimize
from torch import Tensor

from bidual.losses import Loss
from bidual.losses.datafit import Datafit
from bidual.testing.tools import normal, positive, require, require_at_least, require_close, require_refused
from bidual.types import Matrix


def example_targets(loss: Loss, n: int, c: int, generator: torch.Generator) -> Matrix:
    """Random targets that ``loss`` accepts; the first rows of one-hot targets show every class."""
    if not loss.one_output:
        rest = torch.randint(c, (max(n - c, 0),), generator=generator)
        return torch.eye(c, dtype=torch.float64)[torch.cat([torch.arange(c), rest])[:n]]
    Y = normal((n, c), generator)
    if loss.counts:  # numbers below one too, and zeros, which are half of them
        return torch.where(Y > 0.8, (2 * Y.exp()).floor(), Y.clamp(min=0))
    return torch.where(Y >= 0, 1.0, -1.0).to(Y) if loss.classification else Y


def check_loss(loss: Loss, generator: torch.Generator) -> None:
    """A loss is non-negative and convex, and its gradient, conjugate, prox and domain belong together."""
    for c in (1, 2, 3):
        Y = example_targets(loss, 12, c, generator)
        loss.check_targets(Y)
        for scale in (0.1, 1.0, 30.0, 3000.0):
            P = scale * normal(Y.shape, generator)
            _check_prox(loss, P, Y, generator)
            if scale > 100 and _grows_without_bound(loss):
                _check_overflow(loss, P, Y)
                continue
            _check_subgradient(loss, P, Y, generator)
            _check_fenchel_young(loss, P, Y, generator)
        _check_conjugate(loss, Y, generator)
        _check_domain(loss, Y, generator)
        _check_balance(loss, Y, generator)
        if loss.smooth:
            _check_derivatives(loss, Y, generator)
            _check_smoothness(loss, Y, generator)
        _check_slope(loss, Y, generator)
        _check_probabilities(loss, Y, generator)
    _check_row_shapes(loss)


def _check_probabilities(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    """Of outputs of all sizes, and of some that differ by roundings only."""
    if not loss.gives_probabilities:
        require_refused("loss: probabilities that there are not", lambda: loss.probabilities(Y))
        return
    if Y.shape[1] == 1 and not loss.one_output:
        return
    for scale in (1e-17, 0.1, 1.0, 30.0, 3000.0):
        for centre in (0.0, 1.0):
            P = centre + scale * normal(Y.shape, generator)
            shares = loss.probabilities(P)
            require(shares.shape == (len(Y), max(Y.shape[1], 2)), "loss: a probability for every class")
            require(bool((shares >= 0).all()), f"loss: probabilities are not negative, got {shares.min()}")
            require_close(shares.sum(1), torch.ones_like(shares[:, 0]), "loss: probabilities add up to one", 1e-14)
            same = torch.equal(shares.argmax(1), loss.likeliest(P))
            require(same, "loss: the class of the largest output has the largest probability")


def _grows_without_bound(loss: Loss) -> bool:
    """Whether neither the loss nor its gradient has a Lipschitz constant, as for an exponential."""
    return loss.slope is None and loss.smoothness is None


def _check_overflow(loss: Loss, P: Tensor, Y: Tensor) -> None:
    """Where numbers end, a value is infinite and never NaN."""
    value, slope = loss.value(P, Y), loss.grad(P, Y)
    require(not bool(value.isnan().any() | slope.isnan().any()), "loss: no NaN at large predictions")
    require(bool((value >= 0).all()), f"loss: value is not negative, got {value.min()}")


def _check_slope(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    if loss.slope is not None:
        P = 100 * normal(Y.shape, generator)
        size = loss.grad(P, Y).abs().max() if loss.separable else torch.linalg.vector_norm(loss.grad(P, Y), dim=1).max()
        require_at_least(loss.slope * (1 + 1e-12), float(size), "loss: slope bounds the gradient")


def _check_subgradient(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    value, slope = loss.value(P, Y), loss.grad(P, Y)
    require(value.shape == Y.shape[:1] and slope.shape == Y.shape, "loss: one number and one row per sample")
    require(value.dtype == slope.dtype == P.dtype, f"loss: float64 in and out, got {value.dtype} and {slope.dtype}")
    require(bool(torch.isfinite(value).all()), f"loss: value is finite, got {value.max()} at |p| = {P.abs().max():.3g}")
    require(bool((value >= 0).all()), f"loss: value is not negative, got {value.min()}")
    for step in (1e-3, 1.0) if _grows_without_bound(loss) else (1e-3, 1.0, 1e3):
        move = step * normal(P.shape, generator)
        tangent = value + (slope * move).sum(1)
        require_at_least(loss.value(P + move, Y), tangent, "loss: convex, above the tangent given by grad")


def _check_derivatives(loss: Loss, Y: Tensor, generator: torch.Generator, h: float = 1e-5) -> None:
    """grad, curvature, hessian and summed_hessian against central differences."""
    P, weight = normal(Y.shape, generator), positive((len(Y), 1), generator)
    hessian = torch.zeros(Y.shape[1], Y.shape[1], dtype=Y.dtype)
    for k, e in enumerate(h * torch.eye(Y.shape[1], dtype=Y.dtype)):
        slope = (loss.value(P + e, Y) - loss.value(P - e, Y)) / (2 * h)
        require_close(loss.grad(P, Y)[:, k], slope, "loss: grad against finite differences", 1e-5)
        bend = (loss.grad(P + e, Y) - loss.grad(P - e, Y)) / (2 * h)
        require_close(loss.curvature(P, Y)[:, k], bend[:, k], "loss: curvature against finite differences", 1e-5)
        require_close(loss.hessian(P, Y)[:, :, k], bend, "loss: hessian against finite differences", 1e-5)
        hessian[:, k] = (weight * bend).sum(0)
    require_close(loss.summed_hessian(P, Y, weight), hessian, "loss: summed_hessian against finite differences", 1e-5)


def _check_fenchel_young(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    V, slope, value = loss.into_domain(2 * normal(P.shape, generator), Y), loss.grad(P, Y), loss.value(P, Y)
    product, touching = (P * V).sum(1), (P * slope).sum(1)
    require_at_least(value + loss.conjugate(V, Y), product, "loss: Fenchel-Young inequality")
    require_close(value + loss.conjugate(slope, Y), touching, "loss: Fenchel-Young equality at the gradient", 1e-11)


def _check_conjugate(loss: Loss, Y: Tensor, generator: torch.Generator, step: float = 1e6) -> None:
    """The supremum is climbed by the proximal point method, which runs away where the conjugate is infinite."""
    for V in (normal(Y.shape, generator), loss.into_domain(normal(Y.shape, generator), Y)):
        P, claimed = torch.zeros_like(Y), loss.conjugate(V, Y)
        for _ in range(4):
            P = loss.prox(P + step * V, Y, step)
        climbed = (P * V).sum(1) - loss.value(P, Y)
        inside = torch.isfinite(claimed)
        require_close(claimed[inside], climbed[inside], "loss: conjugate is the supremum on its domain", 1e-4)
        require(bool((climbed[~inside] > 10).all()), "loss: conjugate is infinite only where the supremum is")


def _check_domain(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    for scale in (0.1, 1.0, 10.0):
        V = loss.into_domain(scale * normal(Y.shape, generator), Y)
        require(bool(torch.isfinite(loss.conjugate(V, Y)).all()), "loss: into_domain lands in the domain")
        require_close(loss.into_domain(V, Y), V, "loss: into_domain keeps a point of the domain", 1e-14)
        slope = loss.grad(scale * normal(Y.shape, generator), Y)
        require_close(loss.into_domain(slope, Y), slope, "loss: gradients lie in the domain", 1e-14)
        part = loss.conjugate(0.3 * V, Y)
        require(bool(torch.isfinite(part).all()), "loss: the domain contains 0 and is convex, so 0.3 V stays in it")


def _check_prox(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    """(p - q) / step must be a subgradient at q = prox(p)."""
    step = 10 ** (6 * torch.rand(len(P), 1, generator=generator, dtype=P.dtype) - 3)
    for start in (None, normal(P.shape, generator)):
        Q = loss.prox(P, Y, step, start)
        require(bool(torch.isfinite(Q).all()), f"loss: prox is finite at |p| = {P.abs().max():.3g}")
        V = (P - Q) / step
        inside = loss.into_domain(V, Y)
        rounding = 1e-13 * P.abs().amax(1, keepdim=True) / step
        require(bool(((V - inside).abs() <= 1e-11 + rounding).all()), "loss: (p - prox(p)) / step is a subgradient")
        gap = loss.value(Q, Y) + loss.conjugate(inside, Y) - (Q * inside).sum(1)
        allowed = (1e-11 + rounding[:, 0]) * (1 + P.abs().sum(1))
        require(bool((gap.abs() <= allowed).all()), f"loss: prox is optimal, Fenchel-Young gap {gap.abs().max():.2e}")


def _check_balance(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    weight = positive((len(Y), 1), generator)
    for point in (normal(Y.shape, generator), loss.grad(normal(Y.shape, generator), Y)):
        V = loss.balance(weight * loss.into_domain(point, Y), Y, weight)
        excess = V.sum(0).abs().max() / V.abs().sum().clamp(min=1e-300)
        require(float(excess) <= 1e-12, f"loss: balanced columns sum to zero, got {excess:.2e} relative")
        require_close(loss.into_domain(V / weight, Y), V / weight, "loss: balance stays in the weighted domain", 1e-13)


def _check_smoothness(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    for scale in (1e-4, 1.0, 10.0):
        P = normal(Y.shape, generator)
        move = scale * normal(Y.shape, generator)
        change = torch.linalg.vector_norm(loss.grad(P + move, Y) - loss.grad(P, Y), dim=1)
        sizes = torch.linalg.vector_norm(move, dim=1)
        near = loss.local_smoothness(P, float(sizes.max()))
        require(near is not None, "loss: a smooth loss has a local_smoothness")
        for bound in (near, loss.smoothness):
            if bound is not None:
                require_at_least(bound * sizes, change, "loss: smoothness bounds the change of grad")


def _check_row_shapes(loss: Loss) -> None:
    two, one = torch.ones(4, 2, dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    for name in ("value", "grad", "conjugate", "into_domain", "curvature"):
        require_refused(f"loss: {name} of shapes (4, 2) and (4, 1)", partial(getattr(loss, name), two, one))
    require_refused("loss: prox of shapes (4, 2) and (4, 1)", lambda: loss.prox(two, one, 1.0))


def check_datafit(fit: Datafit, generator: torch.Generator) -> None:
    """A data term is the best sum over intercepts, and its gradient and conjugate belong to it."""
    P = 2 * normal(fit.targets.shape, generator)
    _check_partial_minimum(fit, P)
    _check_datafit_duality(fit, P, generator)
    _check_repeated_rows(fit, P)
    if fit.loss.smooth:
        _check_datafit_gradient(fit, P, generator)


def _check_partial_minimum(fit: Datafit, P: Tensor) -> None:
    require_close(fit.value(P), fit.value_at(P, fit.offset(P)), "datafit: value is taken at offset", 1e-12)
    if not fit.intercept:
        require(not bool(fit.offset(P).any()), "datafit: no intercept, no offset")
        return
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxfev": 200}
    b0 = fit.offset(P).numpy()
    for start in (0 * b0, b0):
        result = minimize(lambda b: fit.value_at(P, torch.from_numpy(b)), start, method="Nelder-Mead", options=options)
        require_at_least(result.fun, fit.value(P), "datafit: value is the minimum over intercepts", 1e-9)


def _check_datafit_duality(fit: Datafit, P: Tensor, generator: torch.Generator) -> None:
    V = fit.into_domain(2 * normal(P.shape, generator))
    require_at_least(fit.value(P) + fit.conjugate(V), float((P * V).sum()), "datafit: Fenchel-Young inequality")
    require_at_least(fit.value(P + 3.0) + fit.conjugate(V), float(((P + 3.0) * V).sum()), "datafit: duals are balanced")
    V = fit.into_domain(fit.grad(P))
    touching, product = fit.value(P) + fit.conjugate(V), float((P * V).sum())
    tol = 1e-9 if fit.loss.smooth else 1e-5
    require_close(touching, product, "datafit: Fenchel-Young equality at the gradient", tol)


def _check_repeated_rows(fit: Datafit, P: Tensor) -> None:
    """The first sample with double weight is the first sample twice."""
    weight = fit.weights[:, 0].clone()
    twice = torch.cat([fit.targets, fit.targets[:1]])
    repeated = Datafit(fit.loss, twice, torch.cat([weight, weight[:1]]), fit.intercept)
    weight[0] *= 2
    doubled = Datafit(fit.loss, fit.targets, weight, fit.intercept)
    value = repeated.value(torch.cat([P, P[:1]]))
    require_close(doubled.value(P), value, "datafit: weight two is the sample twice", 1e-9)


def _check_datafit_gradient(fit: Datafit, P: Tensor, generator: torch.Generator, h: float = 1e-5) -> None:
    slope, previous = fit.grad(P), fit.grad(P + h * normal(P.shape, generator))
    require(bool(torch.isfinite(previous).all()), "datafit: gradients are finite")
    for _ in range(3):
        E = normal(P.shape, generator)
        numeric = (fit.value(P + h * E) - fit.value(P - h * E)) / (2 * h)
        require_close(float((slope * E).sum()), numeric, "datafit: grad against finite differences", 1e-5)
