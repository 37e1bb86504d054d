"""Contract checks that ship with the package: run them on a loss, gauge, operator or architecture of your own.

Every ``check_*`` raises an AssertionError that says which promise was broken, and by how much. They draw from the given
generator only, work in float64 and take a fraction of a second:

    check_loss(MyLoss(), torch.Generator().manual_seed(0))
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jaxtyping
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from bidual.architectures import Architecture
from bidual.datafit import Datafit
from bidual.gauges import GAUGES, BlockSeparable, EuclideanGroups, Factorised, Factors, Gauge, Proximable
from bidual.losses import Loss, MarginLoss, Softmax
from bidual.losses.base import Matrix
from bidual.networks import NETWORKS, RebuildableModule
from bidual.operators import HasKernel, LiftedOperator

T = TypeVar("T")
GAUGE_SHAPES = ((3, 4, 2), (2, 2, 5), (4, 3, 1), (2, 1, 3), (1, 7, 2), (1, 1, 1))


def concrete_subclasses(base: type[T]) -> list[type[T]]:
    """Every class of this package below ``base`` that can be instantiated; imports the base's folder to find them."""
    package = importlib.import_module(base.__module__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    found = {cls for cls in _descendants(base) if cls.__module__.startswith("bidual.") and not inspect.isabstract(cls)}
    return sorted(found, key=lambda cls: cls.__qualname__)


def example_targets(loss: Loss, n: int, c: int, generator: torch.Generator) -> Matrix:
    """Random targets that ``loss`` accepts; the first rows of a softmax target show every class."""
    if isinstance(loss, Softmax):
        rest = torch.randint(c, (max(n - c, 0),), generator=generator)
        return torch.eye(c, dtype=torch.float64)[torch.cat([torch.arange(c), rest])[:n]]
    Y = _normal((n, c), generator)
    return torch.where(Y >= 0, 1.0, -1.0).to(Y) if isinstance(loss, MarginLoss) else Y


# ------------------------------------------------------------------------------------------------------------ losses


def check_loss(loss: Loss, generator: torch.Generator) -> None:
    """A loss is non-negative and convex, and its gradient, conjugate, prox and domain belong together."""
    for c in (1, 2, 3):
        Y = example_targets(loss, 12, c, generator)
        loss.check_targets(Y)
        for scale in (0.1, 1.0, 30.0, 3000.0):
            P = scale * _normal(Y.shape, generator)
            _check_subgradient(loss, P, Y, generator)
            _check_fenchel_young(loss, P, Y, generator)
            _check_prox(loss, P, Y, generator)
        _check_conjugate(loss, Y, generator)
        _check_domain(loss, Y, generator)
        _check_balance(loss, Y, generator)
        if loss.smoothness is not None:
            _check_derivatives(loss, Y, generator)
            _check_smoothness(loss, Y, generator)
    _check_row_shapes(loss)


def _check_subgradient(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    value, slope = loss.value(P, Y), loss.grad(P, Y)
    _require(value.shape == Y.shape[:1] and slope.shape == Y.shape, "loss: one number and one row per sample")
    _require(
        bool(torch.isfinite(value).all()), f"loss: value is finite, got {value.max()} at |p| = {P.abs().max():.3g}"
    )
    _require(bool((value >= 0).all()), f"loss: value is not negative, got {value.min()}")
    for step in (1e-3, 1.0, 1e3):
        move = step * _normal(P.shape, generator)
        tangent = value + (slope * move).sum(1)
        _require_at_least(loss.value(P + move, Y), tangent, "loss: convex, above the tangent given by grad")


def _check_derivatives(loss: Loss, Y: Tensor, generator: torch.Generator, h: float = 1e-5) -> None:
    """grad, curvature and summed_hessian against central differences."""
    P, weight = _normal(Y.shape, generator), _positive((len(Y), 1), generator)
    hessian = torch.zeros(Y.shape[1], Y.shape[1], dtype=Y.dtype)
    for k, e in enumerate(h * torch.eye(Y.shape[1], dtype=Y.dtype)):
        slope = (loss.value(P + e, Y) - loss.value(P - e, Y)) / (2 * h)
        _require_close(loss.grad(P, Y)[:, k], slope, "loss: grad against finite differences", 1e-5)
        bend = (loss.grad(P + e, Y) - loss.grad(P - e, Y)) / (2 * h)
        _require_close(loss.curvature(P, Y)[:, k], bend[:, k], "loss: curvature against finite differences", 1e-5)
        hessian[:, k] = (weight * bend).sum(0)
    _require_close(loss.summed_hessian(P, Y, weight), hessian, "loss: summed_hessian against finite differences", 1e-5)


def _check_fenchel_young(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    V, slope, value = loss.into_domain(2 * _normal(P.shape, generator), Y), loss.grad(P, Y), loss.value(P, Y)
    product, touching = (P * V).sum(1), (P * slope).sum(1)
    _require_at_least(value + loss.conjugate(V, Y), product, "loss: Fenchel-Young inequality")
    _require_close(value + loss.conjugate(slope, Y), touching, "loss: Fenchel-Young equality at the gradient", 1e-11)


def _check_conjugate(loss: Loss, Y: Tensor, generator: torch.Generator, step: float = 1e6) -> None:
    """The supremum is climbed by the proximal point method, which runs away where the conjugate is infinite."""
    for V in (_normal(Y.shape, generator), loss.into_domain(_normal(Y.shape, generator), Y)):
        P, claimed = torch.zeros_like(Y), loss.conjugate(V, Y)
        for _ in range(4):
            P = loss.prox(P + step * V, Y, step)
        climbed = (P * V).sum(1) - loss.value(P, Y)
        inside = torch.isfinite(claimed)
        _require_close(claimed[inside], climbed[inside], "loss: conjugate is the supremum on its domain", 1e-4)
        _require(bool((climbed[~inside] > 10).all()), "loss: conjugate is infinite only where the supremum is")


def _check_domain(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    for scale in (0.1, 1.0, 10.0):
        V = loss.into_domain(scale * _normal(Y.shape, generator), Y)
        _require(bool(torch.isfinite(loss.conjugate(V, Y)).all()), "loss: into_domain lands in the domain")
        _require_close(loss.into_domain(V, Y), V, "loss: into_domain keeps a point of the domain", 1e-14)
        slope = loss.grad(scale * _normal(Y.shape, generator), Y)
        _require_close(loss.into_domain(slope, Y), slope, "loss: gradients lie in the domain", 1e-14)
        part = loss.conjugate(0.3 * V, Y)
        _require(bool(torch.isfinite(part).all()), "loss: the domain contains 0 and is convex, so 0.3 V stays in it")


def _check_prox(loss: Loss, P: Tensor, Y: Tensor, generator: torch.Generator) -> None:
    """(p - q) / step must be a subgradient at q = prox(p)."""
    step = 10 ** (6 * torch.rand(len(P), 1, generator=generator, dtype=P.dtype) - 3)
    for start in (None, _normal(P.shape, generator)):
        Q = loss.prox(P, Y, step, start)
        _require(bool(torch.isfinite(Q).all()), f"loss: prox is finite at |p| = {P.abs().max():.3g}")
        V = (P - Q) / step
        inside = loss.into_domain(V, Y)
        rounding = 1e-13 * P.abs().amax(1, keepdim=True) / step
        _require(bool(((V - inside).abs() <= 1e-11 + rounding).all()), "loss: (p - prox(p)) / step is a subgradient")
        gap = loss.value(Q, Y) + loss.conjugate(inside, Y) - (Q * inside).sum(1)
        allowed = (1e-11 + rounding[:, 0]) * (1 + P.abs().sum(1))
        _require(bool((gap.abs() <= allowed).all()), f"loss: prox is optimal, Fenchel-Young gap {gap.abs().max():.2e}")


def _check_balance(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    weight = _positive((len(Y), 1), generator)
    for point in (_normal(Y.shape, generator), loss.grad(_normal(Y.shape, generator), Y)):
        V = loss.balance(weight * loss.into_domain(point, Y), Y, weight)
        excess = V.sum(0).abs().max() / V.abs().sum().clamp(min=1e-300)
        _require(float(excess) <= 1e-12, f"loss: balanced columns sum to zero, got {excess:.2e} relative")
        _require_close(loss.into_domain(V / weight, Y), V / weight, "loss: balance stays in the weighted domain", 1e-13)


def _check_smoothness(loss: Loss, Y: Tensor, generator: torch.Generator) -> None:
    for scale in (1e-4, 1.0, 10.0):
        P = _normal(Y.shape, generator)
        move = scale * _normal(Y.shape, generator)
        change = torch.linalg.vector_norm(loss.grad(P + move, Y) - loss.grad(P, Y), dim=1)
        bound = (loss.smoothness or 0.0) * torch.linalg.vector_norm(move, dim=1)
        _require_at_least(bound, change, "loss: smoothness bounds the change of grad")


def _check_row_shapes(loss: Loss) -> None:
    two, one = torch.ones(4, 2, dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    for name in ("value", "grad", "conjugate", "into_domain", "curvature"):
        _require_refused(f"loss: {name} of shapes (4, 2) and (4, 1)", partial(getattr(loss, name), two, one))
    _require_refused("loss: prox of shapes (4, 2) and (4, 1)", lambda: loss.prox(two, one, 1.0))


# ----------------------------------------------------------------------------------------------------------- datafit


def check_datafit(fit: Datafit, generator: torch.Generator) -> None:
    """A data term is the best sum over intercepts, and its gradient and conjugate belong to it."""
    P = 2 * _normal(fit.targets.shape, generator)
    _check_partial_minimum(fit, P)
    _check_datafit_duality(fit, P, generator)
    _check_repeated_rows(fit, P)
    if fit.smoothness is not None:
        _check_datafit_gradient(fit, P, generator)


def _check_partial_minimum(fit: Datafit, P: Tensor) -> None:
    _require_close(fit.value(P), fit.value_at(P, fit.offset(P)), "datafit: value is taken at offset", 1e-12)
    if not fit.intercept:
        _require(not bool(fit.offset(P).any()), "datafit: no intercept, no offset")
        return
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxfev": 200}
    b0 = fit.offset(P).numpy()
    for start in (0 * b0, b0):
        result = minimize(lambda b: fit.value_at(P, torch.from_numpy(b)), start, method="Nelder-Mead", options=options)
        _require_at_least(result.fun, fit.value(P), "datafit: value is the minimum over intercepts", 1e-9)


def _check_datafit_duality(fit: Datafit, P: Tensor, generator: torch.Generator) -> None:
    V = fit.into_domain(2 * _normal(P.shape, generator))
    _require_at_least(fit.value(P) + fit.conjugate(V), float((P * V).sum()), "datafit: Fenchel-Young inequality")
    _require_at_least(
        fit.value(P + 3.0) + fit.conjugate(V), float(((P + 3.0) * V).sum()), "datafit: duals are balanced"
    )
    V = fit.into_domain(fit.grad(P))
    tight, product = fit.value(P) + fit.conjugate(V), float((P * V).sum())
    _require_close(
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
    _require_close(doubled.value(P), value, "datafit: weight two is the sample twice", 1e-9)


def _check_datafit_gradient(fit: Datafit, P: Tensor, generator: torch.Generator, h: float = 1e-5) -> None:
    slope, previous = fit.grad(P), fit.grad(P + h * _normal(P.shape, generator))
    _require(bool(torch.isfinite(previous).all()), "datafit: gradients are finite")
    for _ in range(3):
        E = _normal(P.shape, generator)
        numeric = (fit.value(P + h * E) - fit.value(P - h * E)) / (2 * h)
        _require_close(float((slope * E).sum()), numeric, "datafit: grad against finite differences", 1e-5)


# ------------------------------------------------------------------------------------------------------------ gauges


def check_gauge(gauge: Gauge, generator: torch.Generator) -> None:
    """A gauge is a norm with its polar, and whatever else it can do agrees with them."""
    for shape in GAUGE_SHAPES:
        Z, G = _normal(shape, generator), _normal(shape, generator)
        _check_norm(gauge, Z, G)
        _check_polar(gauge, Z, G)
        if isinstance(gauge, Proximable):
            _check_gauge_prox(gauge, Z)
        if isinstance(gauge, Factorised):
            _check_factors(gauge, Z, generator)
        if isinstance(gauge, BlockSeparable):
            _require_close(float(gauge.block_value(Z).sum()), gauge.value(Z), "gauge: block values add up")
            _require_close(float(gauge.block_polar(G).max()), gauge.polar(G).upper, "gauge: polar is the worst block's")
        if isinstance(gauge, EuclideanGroups) and (groups := gauge.column_groups(shape[2])):
            norms = [torch.linalg.vector_norm(Z[:, :, group], dim=(1, 2)).sum() for group in groups]
            _require_close(float(sum(norms)), gauge.value(Z), "gauge: column_groups give the value")
    _require_refused("gauge: value of a matrix", lambda: gauge.value(torch.ones(3, 2, dtype=torch.float64)))


def _check_norm(gauge: Gauge, Z: Tensor, G: Tensor) -> None:
    value = gauge.value(Z)
    _require(
        value > 0 and gauge.value(torch.zeros_like(Z)) == 0, f"gauge: positive off zero, zero at zero, got {value}"
    )
    for scale in (1e-6, 3.0, 1e6):
        _require_close(gauge.value(scale * Z), scale * value, "gauge: homogeneous")
    _require_at_least(value + gauge.value(G), gauge.value(Z + G), "gauge: triangle inequality")


def _check_polar(gauge: Gauge, Z: Tensor, G: Tensor) -> None:
    polar = gauge.polar(G)
    _require(0 < polar.lower <= polar.upper, f"gauge: polar is a bracket, got {polar}")
    _require_at_least(polar.upper * gauge.value(Z), float((G * Z).sum()), "gauge: <G, Z> <= polar(G) value(Z)")
    if isinstance(gauge, Proximable):  # a step just below the polar leaves a direction that attains it
        best = gauge.prox(G, 0.999 * polar.lower)
        _require(bool(best.any()), "gauge: prox with a step below the polar is not zero")
        _require_at_least(float((G * best).sum()), 0.999 * polar.lower * gauge.value(best), "gauge: polar is attained")
        _require(not bool(gauge.prox(G, 1.001 * polar.upper).any()), "gauge: prox with a step above the polar is zero")


def _check_gauge_prox(gauge: Gauge, Z: Tensor) -> None:
    """Moreau: Z = prox(Z) + R with R in the scaled polar ball, and R touching it at prox(Z)."""
    for step in (0.01, 0.5, 2.0, 100.0):
        Q = gauge.prox(Z, step)  # type: ignore[attr-defined]
        _require_at_least(step, gauge.polar(Z - Q).lower, "gauge: Z - prox(Z) lies in the polar ball", 1e-9)
        _require_close(float(((Z - Q) * Q).sum()), step * gauge.value(Q), "gauge: Moreau identity of prox", 1e-9)


def _check_factors(gauge: Any, Z: Tensor, generator: torch.Generator) -> None:
    """BM Lemma 3.1: every factorisation costs at least the gauge, and split attains it, also on zero blocks."""
    for sparse in (Z, Z * (torch.arange(len(Z)) % 2 == 0)[:, None, None], torch.zeros_like(Z)):
        factors = gauge.split(sparse)
        _require_close(factors.U @ factors.W.mT, sparse, "gauge: split multiplies back to Z")
        _require_close(gauge.factor_penalty(factors), gauge.value(sparse), "gauge: split costs the value")
    for scale in (0.1, 1.0, 10.0):
        U, W = _normal((len(Z), Z.shape[1], 4), generator), scale * _normal((len(Z), Z.shape[2], 4), generator)
        price = gauge.factor_penalty(Factors(U, W))
        _require_at_least(price, gauge.value(U @ W.mT), "gauge: no factors are cheaper than the value")
        if gauge.smooth_factors(Z.shape[2]):
            _require_close(
                price, 0.5 * float(U.square().sum() + W.square().sum()), "gauge: smooth_factors is weight decay"
            )


# --------------------------------------------------------------------------------------------------------- operators


def check_operator(operator: LiftedOperator, generator: torch.Generator) -> None:
    """An operator is linear, its adjoint is its adjoint, and its parts are parts of it."""
    Z, V = _normal(operator.block_shape, generator), _normal(operator.output_shape, generator)
    dense = operator.dense()
    _require_close(operator.forward(Z).flatten(), dense @ Z.flatten(), "operator: forward equals dense")
    _require_close(operator.adjoint(V).flatten(), dense.T @ V.flatten(), "operator: adjoint equals dense")
    left, right = float((operator.forward(Z) * V).sum()), float((Z * operator.adjoint(V)).sum())
    _require_close(left, right, "operator: <A Z, V> = <Z, A* V>", 1e-11)
    _require(not bool(operator.forward(operator.zeros()).any()), "operator: A 0 = 0")
    _check_select(operator, Z, V)
    _check_magnitude(operator, dense, V)
    _check_single_precision(operator, Z, V)
    _check_operator_norm(operator, dense, generator)
    if isinstance(operator, HasKernel):
        _check_kernel(operator, dense, generator)
    _require_refused(
        "operator: forward of a wrong shape", lambda: operator.forward(Z[:, :, :1].repeat(1, 1, Z.shape[2] + 1))
    )
    _require_refused("operator: adjoint of a wrong shape", lambda: operator.adjoint(V[:, :1].repeat(1, V.shape[1] + 1)))


def _check_select(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    blocks = torch.arange(len(Z))
    for chosen in (blocks, blocks.flip(0), blocks[-1:], blocks[::2], blocks[:0]):
        part, masked = operator.select(chosen), torch.zeros_like(Z)
        masked[chosen] = Z[chosen]
        _require(part.block_shape == (len(chosen), *Z.shape[1:]), f"operator: select keeps {len(chosen)} blocks")
        _require_close(part.forward(Z[chosen]), operator.forward(masked), "operator: select restricts forward")
        _require_close(part.adjoint(V), operator.adjoint(V)[chosen], "operator: select restricts adjoint")


def _check_magnitude(operator: LiftedOperator, dense: Tensor, V: Tensor) -> None:
    sizes = (dense.abs().T @ V.abs().flatten()).reshape(len(operator.zeros()), -1)
    worst = float(torch.linalg.vector_norm(sizes, dim=1).max())
    bound = operator.magnitude * float(torch.linalg.vector_norm(V))
    _require_at_least(bound, worst, "operator: magnitude bounds every block")


def _check_single_precision(operator: LiftedOperator, Z: Tensor, V: Tensor) -> None:
    single = operator.to(torch.float32)
    predictions, blocks = single.forward(Z.float()), single.adjoint(V.float())
    _require(predictions.dtype == blocks.dtype == torch.float32, "operator: to(float32) computes in float32")
    _require_close(predictions.double(), operator.forward(Z), "operator: float32 forward is near", 1e-4)
    _require_close(blocks.double(), operator.adjoint(V), "operator: float32 adjoint is near", 1e-4)


def _check_operator_norm(operator: LiftedOperator, dense: Tensor, generator: torch.Generator) -> None:
    exact = float(torch.linalg.matrix_norm(dense, ord=2)) ** 2
    estimate = operator.norm_squared(generator, rounds=100)
    _require(0.9 * exact <= estimate <= (1 + 1e-9) * exact, f"operator: norm_squared {estimate} estimates {exact}")


def _check_kernel(operator: Any, dense: Tensor, generator: torch.Generator) -> None:
    n, c = operator.output_shape
    p, rows, _ = operator.block_shape
    gram = (dense @ dense.T).reshape(n, c, n, c)
    expected = operator.kernel()[:, None, :, None] * torch.eye(c, dtype=dense.dtype)[None, :, None, :]
    _require_close(gram, expected, "operator: A A* is the kernel, one copy per output")
    _require_close(
        operator.design() @ operator.design().T, operator.kernel(), "operator: the design's Gram is the kernel"
    )
    weights = _positive((p,), generator)
    weights[0] = 0.0
    parts = sum(weights[k] * operator.select(torch.tensor([k])).kernel() for k in range(p))
    _require_close(operator.kernel(weights), parts, "operator: kernel(weights) weighs the blocks")
    G, Z = _normal((p, rows), generator), operator.zeros()
    for q, block in enumerate(chosen := torch.arange(p).flip(0)):
        Z.zero_()[block, :, 0] = G[block]
        _require_close(
            operator.responses(G, chosen)[:, q], operator.forward(Z)[:, 0], "operator: responses are A_p G_p"
        )


# ----------------------------------------------------------------------------------------------------- architectures


def check_architecture(cls: type[Architecture], generator: torch.Generator) -> None:
    """Decoding keeps predictions and price, for every penalty on offer, and the network can be stored."""
    example, X = cls.example(generator)
    offered = list(_penalties(example))
    _require(bool(offered), f"{cls.__name__}: example offers a penalty")
    for architecture in offered:
        for c in (1, 3):
            operator = architecture.lift(X, c)
            for density in (1.0, 0.5, 0.0):
                keep = torch.rand(len(operator.zeros()), 1, 1, generator=generator) < density
                Z = _normal(operator.block_shape, generator) * keep
                _check_decoding(architecture, operator, X, Z, _normal((c,), generator))
    _require_refused(f"{cls.__name__}: lift to no outputs", lambda: example.lift(X, 0))


def _check_decoding(architecture: Architecture, operator: LiftedOperator, X: Tensor, Z: Tensor, offset: Tensor) -> None:
    name, module = type(architecture).__name__, architecture.decode(Z, offset)
    with torch.no_grad():
        predictions = module(X)
    _require_close(predictions, operator.forward(Z) + offset, f"{name}: decode keeps predictions", 1e-10)
    price, value = architecture.regulariser(module), architecture.gauge().value(Z)
    _require_close(price, value, f"{name}: decode keeps the price", 1e-10)
    _check_storage(module, X, predictions)


def _check_storage(module: nn.Module, X: Tensor, predictions: Tensor) -> None:
    name = type(module).__name__
    if not isinstance(module, RebuildableModule):
        raise AssertionError(f"broken: {name}: a decoded network is a RebuildableModule.")
    rebuilt = NETWORKS[module.kind].rebuild(module.sizes, module.state_dict())
    _require(type(rebuilt) is type(module), f"{name}: NETWORKS knows its kind")
    with torch.no_grad():
        _require_close(rebuilt(X), predictions, f"{name}: rebuild gives the same network", 1e-14)


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


# ------------------------------------------------------------------------------------------------------------- tools


def _require(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(f"broken: {promise}.")


def _require_close(actual: Tensor | float, expected: Tensor | float, promise: str, tol: float = 1e-10) -> None:
    actual, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (actual, expected))
    _require(actual.shape == expected.shape, f"{promise}: shapes {tuple(actual.shape)}, {tuple(expected.shape)}")
    scale = 1 + (float(expected.abs().max()) if expected.numel() else 0.0)
    error = float((actual - expected).abs().max()) if expected.numel() else 0.0
    _require(error <= tol * scale, f"{promise}: off by {error:.3e}, allowed {tol * scale:.3e}")


def _require_at_least(larger: Tensor | float, smaller: Tensor | float, promise: str, tol: float = 1e-11) -> None:
    larger, smaller = (torch.as_tensor(x, dtype=torch.float64) for x in (larger, smaller))
    slack = larger - smaller + tol * (1 + smaller.abs())
    _require(bool((slack >= 0).all()), f"{promise}: short by {-float(slack.min()):.3e}")


def _require_refused(what: str, call: Callable[[], object]) -> None:
    with own_checks_only():
        try:
            call()
        except ValueError:
            return
    raise AssertionError(f"broken: {what} must raise a ValueError.")


@contextmanager
def own_checks_only() -> Iterator[None]:
    """Without jaxtyping's checks, where a test run has switched them on: users do not have them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def _descendants(base: type[T]) -> Iterator[type[T]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _descendants(cls)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _positive(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 0.1 + 3 * torch.rand(shape, generator=generator, dtype=torch.float64)
