"""What every gauge promises."""

from typing import Any

import torch
from torch import Tensor

from bidual.gauges import BlockGauge, EuclideanGroups, Factorised, Factors, Gauge, Proximable
from bidual.testing.tools import normal, require, require_at_least, require_close, require_refused

GAUGE_SHAPES = ((3, 4, 2), (2, 2, 5), (4, 3, 1), (2, 1, 3), (1, 7, 2), (1, 1, 1))


def check_gauge(gauge: Gauge, generator: torch.Generator) -> None:
    """A gauge is a norm with its polar, and whatever else it can do agrees with them."""
    for shape in GAUGE_SHAPES:
        Z, G = normal(shape, generator), normal(shape, generator)
        _check_norm(gauge, Z, G)
        _check_polar(gauge, Z, G)
        if isinstance(gauge, Proximable):
            _check_gauge_prox(gauge, Z)
        if isinstance(gauge, Factorised):
            _check_factors(gauge, Z, generator)
        if isinstance(gauge, BlockGauge):
            require_close(float(gauge.block_value(Z).sum()), gauge.value(Z), "gauge: block values add up")
            require_close(float(gauge.block_polar(G).max()), gauge.polar(G).upper, "gauge: polar is the worst block's")
        if isinstance(gauge, EuclideanGroups) and (groups := gauge.column_groups(shape[2])):
            norms = [torch.linalg.vector_norm(Z[:, :, group], dim=(1, 2)).sum() for group in groups]
            require_close(float(sum(norms)), gauge.value(Z), "gauge: column_groups give the value")
    require_refused("gauge: value of a matrix", lambda: gauge.value(torch.ones(3, 2, dtype=torch.float64)))


def _check_norm(gauge: Gauge, Z: Tensor, G: Tensor) -> None:
    value = gauge.value(Z)
    require(value > 0 and gauge.value(torch.zeros_like(Z)) == 0, f"gauge: positive off zero, zero at zero, got {value}")
    for scale in (1e-6, 3.0, 1e6):
        require_close(gauge.value(scale * Z), scale * value, "gauge: homogeneous")
    require_at_least(value + gauge.value(G), gauge.value(Z + G), "gauge: triangle inequality")


def _check_polar(gauge: Gauge, Z: Tensor, G: Tensor) -> None:
    polar = gauge.polar(G)
    require(0 < polar.lower <= polar.upper, f"gauge: polar is a bracket, got {polar}")
    require_at_least(polar.upper * gauge.value(Z), float((G * Z).sum()), "gauge: <G, Z> <= polar(G) value(Z)")
    if isinstance(gauge, Proximable):  # a step just below the polar leaves a direction that attains it
        best = gauge.prox(G, 0.999 * polar.lower)
        require(bool(best.any()), "gauge: prox with a step below the polar is not zero")
        require_at_least(float((G * best).sum()), 0.999 * polar.lower * gauge.value(best), "gauge: polar is attained")
        require(not bool(gauge.prox(G, 1.001 * polar.upper).any()), "gauge: prox with a step above the polar is zero")


def _check_gauge_prox(gauge: Gauge, Z: Tensor) -> None:
    """Moreau: Z = prox(Z) + R with R in the scaled polar ball, and R touching it at prox(Z)."""
    for step in (0.01, 0.5, 2.0, 100.0):
        Q = gauge.prox(Z, step)  # type: ignore[attr-defined]
        require_at_least(step, gauge.polar(Z - Q).lower, "gauge: Z - prox(Z) lies in the polar ball", 1e-9)
        require_close(float(((Z - Q) * Q).sum()), step * gauge.value(Q), "gauge: Moreau identity of prox", 1e-9)


def _check_factors(gauge: Any, Z: Tensor, generator: torch.Generator) -> None:
    """BM Lemma 3.1: every factorisation costs at least the gauge, and split attains it, also on zero blocks."""
    for sparse in (Z, Z * (torch.arange(len(Z)) % 2 == 0)[:, None, None], torch.zeros_like(Z)):
        factors = gauge.split(sparse)
        require_close(factors.U @ factors.W.mT, sparse, "gauge: split multiplies back to Z")
        require_close(gauge.factor_penalty(factors), gauge.value(sparse), "gauge: split costs the value")
    for scale in (0.1, 1.0, 10.0):
        U, W = normal((len(Z), Z.shape[1], 4), generator), scale * normal((len(Z), Z.shape[2], 4), generator)
        price = gauge.factor_penalty(Factors(U, W))
        require_at_least(price, gauge.value(U @ W.mT), "gauge: no factors are cheaper than the value")
        if gauge.smooth_factors(Z.shape[2]):
            require_close(
                price, 0.5 * float(U.square().sum() + W.square().sum()), "gauge: smooth_factors is weight decay"
            )


# --------------------------------------------------------------------------------------------------------- operators
