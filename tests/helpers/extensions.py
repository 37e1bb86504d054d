"""What a user may write outside of the package: a loss for numbers, one for classes, a gauge, a solver, a network.

Each is known to the package from the moment it is defined, so tests import this module while they run, and not when
they are collected: other tests run over all losses and solvers.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from bidual.architectures import Architecture
from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.base import Units
from bidual.gauges import BlockGauge, Factors, Gauge, Group, Proximable
from bidual.losses import ConeRows, Epigraph, Loss, MarginLoss
from bidual.operators import LiftedOperator, LinearOperator
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver


@dataclass(frozen=True)
class Pinball(Loss):
    """max(q (y - p), (q - 1) (y - p)), least where a share q of the targets lies below; l*(v) = v y on [-q, 1 - q]."""

    q: float = 0.5
    name = "pinball"
    translates = True

    @property
    def slope(self) -> float:  # type: ignore[override]
        return max(self.q, 1 - self.q)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.maximum(self.q * (Y - P), (1 - self.q) * (P - Y)).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.where(P > Y, 1 - self.q, torch.where(P < Y, -self.q, 0.0)).to(P)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        slack = 4 * torch.finfo(V.dtype).eps
        inside = (-self.q * (1 + slack) <= V) & ((1 - self.q) * (1 + slack) >= V)
        return torch.where(inside, V * Y, torch.inf).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        above, below = (P - Y - step * (1 - self.q)).clamp(min=0), (Y - P - step * self.q).clamp(min=0)
        return Y + above - below

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V.clamp(-self.q, 1 - self.q)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.zeros_like(P)

    def epigraph(self, Y: Tensor) -> Epigraph:
        n, c = Y.shape
        eye = torch.eye(c, dtype=Y.dtype).expand(n, c, c)
        rows = (
            ConeRows("nonnegative", self.q * eye, eye, -self.q * Y),
            ConeRows("nonnegative", (self.q - 1) * eye, eye, (1 - self.q) * Y),
        )
        return Epigraph(0.0, torch.zeros_like(Y), Y.new_zeros(c), torch.ones_like(Y), rows)


@dataclass(frozen=True)
class LeastSquaresMargin(MarginLoss):
    """1/2 (1 - y p)^2; with a = y v, l*(v) = a + a^2 / 2. Its outputs are read as probabilities (1 + p) / 2."""

    name = "least_squares_margin"
    smoothness = 1.0
    gives_probabilities = True

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return 0.5 * (1 - Y * P).square().sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return P - Y

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        return (Y * V + 0.5 * V.square()).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        return (P + step * Y) / (1 + step)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.ones_like(P)

    def epigraph(self, Y: Tensor) -> Epigraph:
        return Epigraph(1.0, -Y, Y.new_zeros(0), Y.new_zeros(Y.shape[0], 0))

    def _probabilities(self, P: Tensor) -> Tensor:
        positive = ((1 + P) / 2).clamp(2**-10, 1 - 2**-10)  # which ONNX has exactly
        return torch.cat([1 - positive, positive], 1) if P.shape[1] == 1 else positive / positive.sum(1, keepdim=True)


@dataclass(frozen=True)
class Scaled(BlockGauge):
    """price * sum_p |Z_p|_F, which charges neurons price / 2 (|U_p|_F^2 + |W_p|_op^2)."""

    price: float = 2.0
    name = "scaled"

    def block_value(self, Z: Tensor) -> Tensor:
        return self.price * Group().block_value(Z)

    def block_polar(self, G: Tensor) -> Tensor:
        return Group().block_value(G) / self.price

    def per_frobenius(self, rows: int, cols: int) -> float:
        return 1 / self.price

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return Group().prox(Z, self.price * step)

    def split(self, Z: Tensor) -> Factors:
        return Group().split(Z)

    def factor_penalty(self, factors: Factors) -> float:
        return self.price * Group().factor_penalty(factors)

    def smooth_factors(self, cols: int) -> bool:
        return False


@dataclass(frozen=True)
class ProximalGradient(Solver):
    """Z <- prox(Z - A* grad F(A Z) / L), without acceleration; ``safety`` times the usual L."""

    safety: float = 1.0
    name = "proximal_gradient"
    needs = {"gauge": (Proximable,)}  # noqa: RUF012
    needs_smooth_loss = True

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> tuple[Tensor, float]:
        lipschitz = 1.01 * problem.operator.norm_squared(torch.Generator().manual_seed(0))
        Z = problem.operator.zeros() if start is None else start
        return Z, self.safety * lipschitz * (problem.datafit.smoothness or 1.0)

    def step(self, problem: Problem, state: tuple[Tensor, float]) -> tuple[Tensor, float]:
        Z, lipschitz = state
        gradient = problem.operator.adjoint(problem.datafit.grad(problem.operator.forward(Z)))
        gauge: Any = problem.gauge
        return gauge.prox(Z - gradient / lipschitz, problem.beta / lipschitz), lipschitz

    def point(self, problem: Problem, state: tuple[Tensor, float]) -> Tensor:
        return state[0]


class AbsoluteNetwork(RebuildableModule):
    """x -> |x G| W + b with constant G."""

    kind, words, rivals = "absolute", "network of absolute values", "every network of these absolute values"
    always_on = True

    def __init__(self, n_features: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden: Tensor
        self.register_buffer("hidden", torch.zeros(n_features, n_neurons, dtype=torch.float64))
        self.weight = nn.Parameter(torch.zeros(n_neurons, n_outputs, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float64))

    @property
    def sizes(self) -> dict[str, Any]:
        return {"n_features": len(self.hidden), "n_neurons": len(self.weight), "n_outputs": len(self.bias)}

    @property
    def n_neurons(self) -> int:
        return int(self.weight.detach().any(1).sum())

    @property
    def units(self) -> Units:
        return Units.of("kink", self.hidden.T, self.weight, on_features=True, on_outputs=True)

    def on(self, x: Tensor) -> Tensor:
        return x @ self.hidden > 0

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.bias.dtype) @ self.hidden).abs() @ self.weight + self.bias


@dataclass(frozen=True, eq=False)
class Absolute(Architecture):
    """f(X) = |X G| Z with fixed G, priced |Z|_F."""

    directions: Tensor
    name = "absolute"

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return LinearOperator((X @ self.directions.to(X)).abs(), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        module = AbsoluteNetwork(*self.directions.shape, Z.shape[2])
        with torch.no_grad():
            module.hidden.copy_(self.directions)
            module.weight.copy_(Z[0])
            module.bias.copy_(offset)
        return module

    def regulariser(self, module: nn.Module) -> float:
        assert isinstance(module, AbsoluteNetwork)
        return float(torch.linalg.vector_norm(module.weight.detach()))

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        directions, X = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (3, 9))
        return cls(directions), X
