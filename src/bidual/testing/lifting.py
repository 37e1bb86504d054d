"""What every gauge, every lifted operator and every network family promise."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bidual.architectures import Architecture
from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.gauges import GAUGES, BlockGauge, EuclideanGroups, Factorised, Factors, Gauge, Proximable
from bidual.numerics.sparse import written_out
from bidual.operators import HasKernel, LiftedOperator
from bidual.testing.tools import normal, positive, require, require_at_least, require_close, require_refused

_SHAPES = ((3, 4, 2), (2, 2, 5), (4, 3, 1), (2, 1, 3), (1, 7, 2), (1, 1, 1))


def check_gauge(gauge: Gauge, generator: torch.Generator) -> None:
    """A gauge is a norm with its polar, and whatever else it can do agrees with them."""
    for shape in _SHAPES:
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
            decay = 0.5 * float(U.square().sum() + W.square().sum())
            require_close(price, decay, "gauge: smooth_factors is weight decay")


def check_operator(operator: LiftedOperator, generator: torch.Generator) -> None:
    """An operator is linear, its adjoint is its adjoint, and its parts are parts of it."""
    Z, V = normal(operator.block_shape, generator), normal(operator.output_shape, generator)
    dense = operator.dense()
    require_close(operator.forward(Z).flatten(), dense @ Z.flatten(), "operator: forward equals dense")
    require_close(operator.adjoint(V).flatten(), dense.T @ V.flatten(), "operator: adjoint equals dense")
    left, right = float((operator.forward(Z) * V).sum()), float((Z * operator.adjoint(V)).sum())
    require_close(left, right, "operator: <A Z, V> = <Z, A* V>", 1e-11)
    require(not bool(operator.forward(operator.zeros()).any()), "operator: A 0 = 0")
    _check_select(operator, Z, V)
    _check_magnitude(operator, dense, V)
    _check_single_precision(operator, Z, V)
    _check_operator_norm(operator, dense, generator)
    if isinstance(operator, HasKernel):
        _check_kernel(operator, dense, generator)
    require_refused("operator: forward of a wrong shape", lambda: operator.forward(torch.cat([Z, Z], 2)))
    require_refused("operator: adjoint of a wrong shape", lambda: operator.adjoint(torch.cat([V, V], 1)))


def _check_select(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    blocks = torch.arange(len(Z))
    for chosen in (blocks, blocks.flip(0), blocks[-1:], blocks[::2], blocks[:0]):
        part, masked = operator.select(chosen), torch.zeros_like(Z)
        masked[chosen] = Z[chosen]
        require(part.block_shape == (len(chosen), *Z.shape[1:]), f"operator: select keeps {len(chosen)} blocks")
        require_close(part.forward(Z[chosen]), operator.forward(masked), "operator: select restricts forward")
        require_close(part.adjoint(V), operator.adjoint(V)[chosen], "operator: select restricts adjoint")
        require_close(operator.forward_of(masked, chosen), operator.forward(masked), "operator: forward_of some blocks")


def _check_magnitude(operator: LiftedOperator, dense: Tensor, V: Tensor) -> None:
    sizes = (dense.abs().T @ V.abs().flatten()).reshape(len(operator.zeros()), -1)
    worst = float(torch.linalg.vector_norm(sizes, dim=1).max())
    bound = operator.magnitude * float(torch.linalg.vector_norm(V))
    require_at_least(bound, worst, "operator: magnitude bounds every block")


def _check_single_precision(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    single = operator.to(torch.float32)
    predictions, blocks = single.forward(Z.float()), single.adjoint(V.float())
    require(predictions.dtype == blocks.dtype == torch.float32, "operator: to(float32) computes in float32")
    require_close(predictions.double(), operator.forward(Z), "operator: float32 forward is near", 1e-4)
    require_close(blocks.double(), operator.adjoint(V), "operator: float32 adjoint is near", 1e-4)


def _check_operator_norm(operator: LiftedOperator, dense: Tensor, generator: torch.Generator) -> None:
    exact = float(torch.linalg.matrix_norm(dense, ord=2)) ** 2
    estimate = operator.norm_squared(generator, rounds=100)
    require(0.9 * exact <= estimate <= (1 + 1e-9) * exact, f"operator: norm_squared {estimate} estimates {exact}")


def _check_kernel(operator: Any, dense: Tensor, generator: torch.Generator) -> None:
    n, c = operator.output_shape
    p = operator.block_shape[0]
    gram = (dense @ dense.T).reshape(n, c, n, c)
    expected = operator.kernel()[:, None, :, None] * torch.eye(c, dtype=dense.dtype)[None, :, None, :]
    require_close(gram, expected, "operator: A A* is the kernel, one copy per output")
    design = written_out(operator.design())
    require_close(design @ design.T, operator.kernel(), "operator: the design's Gram is the kernel")
    weights = positive((p,), generator)
    weights[0] = 0.0
    parts = sum(weights[k] * operator.select(torch.tensor([k])).kernel() for k in range(p))
    require_close(operator.kernel(weights), parts, "operator: kernel(weights) weighs the blocks")
    require(design.shape == (n, operator.design_width), "operator: design_width is the design's")
    G, Z = normal((p, operator.design_width // p), generator), operator.zeros()
    for q, block in enumerate(chosen := torch.arange(p).flip(0)):
        Z.zero_()[block].reshape(-1, c)[:, 0] = G[block]
        require_close(operator.responses(G, chosen)[:, q], operator.forward(Z)[:, 0], "operator: responses are A_p G_p")


def check_architecture(cls: type[Architecture], generator: torch.Generator) -> None:
    """Decoding keeps predictions and price, for every penalty on offer, and the network can be stored."""
    example, X = cls.example(generator)
    offered = list(_penalties(example))
    require(bool(offered), f"{cls.__name__}: example offers a penalty")
    for architecture in offered:
        for c in (1, 3):
            operator = architecture.lift(X, c)
            for density in (1.0, 0.5, 0.0):
                keep = torch.rand(len(operator.zeros()), 1, 1, generator=generator) < density
                Z = normal(operator.block_shape, generator) * keep
                _check_decoding(architecture, operator, X, Z, normal((c,), generator))
    require_refused(f"{cls.__name__}: lift to no outputs", lambda: example.lift(X, 0))


def _check_decoding(architecture: Architecture, operator: LiftedOperator, X: Tensor, Z: Tensor, offset: Tensor) -> None:
    name, module = type(architecture).__name__, architecture.decode(Z, offset)
    with torch.no_grad():
        predictions = module(X)
    require_close(predictions, operator.forward(Z) + offset, f"{name}: decode keeps predictions", 1e-10)
    price, value = architecture.regulariser(module), architecture.gauge().value(Z)
    require_close(price, value, f"{name}: decode keeps the price", 1e-10)
    _check_storage(module, X, predictions)


def _check_storage(module: nn.Module, X: Tensor, predictions: Tensor) -> None:
    name = type(module).__name__
    if not isinstance(module, RebuildableModule):
        raise AssertionError(f"broken: {name}: a decoded network is a RebuildableModule.")
    rebuilt = NETWORKS[module.kind].rebuild(module.sizes, module.state_dict())
    require(type(rebuilt) is type(module), f"{name}: NETWORKS knows its kind")
    with torch.no_grad():
        require_close(rebuilt(X), predictions, f"{name}: rebuild gives the same network", 1e-14)


def _penalties(architecture: Architecture) -> Iterator[Architecture]:
    if not hasattr(architecture, "penalty"):
        yield architecture
        return
    for penalty in GAUGES:
        offered = replace(architecture, penalty=penalty)  # type: ignore[type-var]
        try:
            offered.gauge()
        except ValueError:
            continue
        yield offered
