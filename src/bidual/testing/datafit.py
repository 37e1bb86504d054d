"""What every data term promises."""

import torch
from scipy.optimize import minimize
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.testing.tools import normal, require, require_at_least, require_close


def check_datafit(fit: Datafit, generator: torch.Generator) -> None:
    """A data term is the best sum over intercepts, and its gradient and conjugate belong to it."""
    P = 2 * normal(fit.targets.shape, generator)
    _check_partial_minimum(fit, P)
    _check_datafit_duality(fit, P, generator)
    _check_repeated_rows(fit, P)
    if fit.smoothness is not None:
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
    tight, product = fit.value(P) + fit.conjugate(V), float((P * V).sum())
    require_close(
        tight, product, "datafit: Fenchel-Young equality at the gradient", 1e-5 if fit.smoothness is None else 1e-9
    )


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


# ------------------------------------------------------------------------------------------------------------ gauges
