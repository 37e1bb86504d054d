"""Training problems whose optimum is known in closed form."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.gauges import GAUGES, Gauge, Proximable
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L2
from bidual.operators import GatedOperator, LiftedOperator, NeuronOperator
from bidual.problems.problem import Problem
from bidual.problems.relu import ReluProblem
from bidual.testing.tools import normal, positive
from bidual.types import as_protocol


@dataclass(frozen=True, eq=False)
class Planted:
    """A problem with its optimum.

    Attributes:
        name: of the operator and the gauge.
        problem: squared loss.
        optimum: the least objective.
        point: a lifted variable of that objective, None where the problem has none.
    """

    name: str
    problem: Problem | ReluProblem
    optimum: float
    point: Tensor | None = None


def planted_problems(seed: int, size: float = 1.0, features: float = 1.0) -> Iterator[Planted]:
    """For every gauge, gated networks with one and two outputs and a dictionary of neurons; and one ReLU network.

    The same problems at every scale: targets, weights and beta grow with ``size``, the samples with ``features``.
    """
    for name in ("gated, one output", "gated, two outputs", "neurons"):
        for gauge, cls in GAUGES.items():
            generator = torch.Generator().manual_seed(seed)
            operator = _operator(name, features, generator)
            if isinstance(made := cls(), Proximable):
                yield _planted(f"{name}, {gauge}", operator, made, size, features, generator)
    yield _planted_relu(seed, size, features)


def _operator(name: str, features: float, generator: torch.Generator) -> LiftedOperator:
    X = features * normal((8, 3), generator)
    if name == "neurons":
        return NeuronOperator(X, L2.unit(normal((6, 3), generator)), 2)
    return GatedOperator(X, normal((4, 8), generator) > 0, 1 if name.endswith("one output") else 2)


def _planted(
    name: str, operator: LiftedOperator, gauge: Gauge, size: float, features: float, generator: torch.Generator
) -> Planted:
    r"""Draw the dual point V first, then the Z that it supports, then the targets that make V the gradient at A Z.

    Z is optimal iff Omega°(-A* V) = beta and <-A* V, Z> = beta Omega(Z) for V = grad F(A Z) = w (A Z - Y). A proximal
    step just short of the polar leaves a Z with the second property. Balanced V leave the targets free to shift.
    """
    V, weight = normal(operator.output_shape, generator), positive((operator.output_shape[0],), generator)
    V = size * (V - V.mean(0))
    slope = -operator.adjoint(V)
    beta = 0.5 * (gauge.polar(slope).lower + gauge.polar(slope).upper)
    Z = as_protocol(gauge, Proximable).prox(slope, beta * (1 - 1e-6))
    Z = (2 * size / features) * Z / gauge.value(Z)
    targets = operator.forward(Z) - V / weight[:, None] + 2 * size
    optimum = 0.5 * float((V.square() / weight[:, None]).sum()) + beta * gauge.value(Z)
    problem = Problem(operator, Datafit(Squared(), targets, weight, intercept=True), gauge, beta)
    return Planted(name, problem, optimum, Z)


def _planted_relu(seed: int, size: float, features: float) -> Planted:
    """Orthogonal samples of one length: the rows of targets with each sign are shrunk like a vector (CP Theorem 3)."""
    generator = torch.Generator().manual_seed(seed)
    X = features * torch.linalg.qr(normal((5, 4), generator)).Q.T
    y, beta = size * normal((4, 1), generator), 0.4 * size * features
    halves = [float(torch.linalg.vector_norm(part)) for part in (y.clamp(min=0), y.clamp(max=0))]
    threshold = beta / features
    optimum = sum(threshold * h - 0.5 * threshold**2 if h > threshold else 0.5 * h * h for h in halves)
    return Planted("ReLU, orthogonal samples", ReluProblem(X, Datafit(Squared(), y), beta), optimum)
