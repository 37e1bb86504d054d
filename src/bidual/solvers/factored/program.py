"""The factored form of a training problem: its neurons are the variables."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Factorised, Factors, FactorSteps
from bidual.operators import LiftedOperator
from bidual.problems.certificate import Certificate, certify
from bidual.problems.problem import Problem
from bidual.problems.solution import Verdict
from bidual.runtime.user_warnings import warn_user
from bidual.solvers.factored.arithmetic import adjoint, forward, norm, plus, resized
from bidual.types import Blocks, Matrix, as_protocol


class Scaling(Enum):
    """How the data term is normalised, as a factor of the sum F over samples."""

    SUM = "sum"  # F, the scaling of everything else here
    MEAN = "mean"  # F / n
    MSE = "mse"  # 2 F / (n c), what torch.nn.MSELoss makes of squared loss

    def factor(self, targets: Matrix) -> float:
        n, c = targets.shape
        return {"sum": 1.0, "mean": 1 / n, "mse": 2 / (n * c)}[self.value]


class Violation(NamedTuple):
    """Columns that lower the objective, and the program for them, which may have new blocks."""

    program: "FactoredProgram"
    factors: Factors
    columns: Factors


@dataclass(frozen=True, eq=False)
class FactoredProgram:
    r"""min over U_p (a, m), W_p (b, m) of F(A (U_p W_p^T)_p) + beta/2 sum_j (|u_j|_C^2 + |w_j|_R^2), BM eq. 14.

    With the nuclear gauge C = R = 2: eq. 17 for a linear network, eq. 18 for a gated one. The norms are those of the
    problem's gauge. m is the number of neurons of every block.

    Values and gradients are those of ``problem``, a sum over samples. Times ``unit`` they are in the scaling of
    :meth:`scaled`; learning rates are multiplied with it too.
    """

    problem: Problem
    m: int
    unit: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.m, bool) or not isinstance(self.m, int | np.integer) or self.m < 1:
            raise ValueError(f"m must be a whole number of at least 1 factor per block, got {self.m!r}.")
        gauge = self.problem.gauge
        if not (isinstance(gauge, Factorised) and isinstance(gauge, FactorSteps)):
            raise ValueError(f"{type(gauge).__name__} has no price on factors. Use a gauge such as Nuclear().")

    def warn_if_wasteful(self) -> None:
        """Warn if m is larger than any theorem needs."""
        _, a, b = self.operator.block_shape
        if self.m > a + b:
            warn_user(
                f"m={self.m} factors per block are more than rows + columns = {a + b} (BM Theorem 3.3); "
                f"{self.width} already attain the price of every block.",
                UserWarning,
            )

    @classmethod
    def scaled(cls, problem: Problem, m: int, scaling: Scaling | str = Scaling.SUM) -> Self:
        r"""The program with the data term k F, k = 1, 1/n or 2/(n c), at the beta of ``problem``.

        k F + beta/2 |.|^2 = k (F + (beta/k)/2 |.|^2): the same minimisers as the sum with beta / k (mean: beta n), an
        objective k times as large, and a learning rate r on it moves as k r does on the sum. So ``problem`` gets the
        other beta, and ``unit`` is k; relative gaps do not change.
        """
        unit = Scaling(scaling).factor(problem.datafit.targets)
        return cls(problem.with_beta(problem.beta / unit), m, unit)

    @property
    def operator(self) -> LiftedOperator:
        return self.problem.operator

    @property
    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Of U and W."""
        p, a, b = self.operator.block_shape
        return (p, a, self.m), (p, b, self.m)

    @property
    def width(self) -> int:
        """How many factors per block attain the gauge of any Z: min(a, b) for the nuclear norm (BM Lemma 3.1)."""
        _, a, b = self.operator.block_shape
        split = as_protocol(self.problem.gauge, Factorised).split(self.operator.like.new_zeros(1, a, b))
        return split.U.shape[2]

    @property
    def smooth(self) -> bool:
        """Whether the price is 1/2 (|U|^2 + |W|^2) and nothing constrains the factors."""
        return as_protocol(self.problem.gauge, Factorised).smooth_factors(self.operator.block_shape[2])

    def start(self, generator: torch.Generator, scale: float = 0.3) -> Factors:
        """Normal factors of standard deviation ``scale``, made feasible."""
        like = self.operator.like
        U, W = (
            scale * torch.randn(shape, generator=generator, dtype=torch.float64).to(like.device, like.dtype)
            for shape in self.shapes
        )
        return self.feasible(Factors(U, W))

    def check(self, factors: Factors) -> Factors:
        """The factors in the problem's precision, or an error if their shapes do not fit."""
        found = tuple(factors.U.shape), tuple(factors.W.shape)
        if found != self.shapes:
            raise ValueError(
                f"the factors need U {self.shapes[0]} and W {self.shapes[1]}, got {found[0]} and {found[1]}; "
                "resized(factors, m) changes the number of columns."
            )
        if not all(bool(torch.isfinite(part).all()) for part in factors):
            raise ValueError("the factors must be finite, got NaN or infinity; leave start out for a random one.")
        like = self.operator.like
        return Factors(factors.U.to(like), factors.W.to(like))

    def check_feasible(self, factors: Factors) -> None:
        """Refuse factors that violate a constraint; (14) has none."""

    def in_float64(self) -> Self:
        """The same program in double precision, for certificates and reports."""
        return replace(self, problem=self.problem.to(torch.float64))

    def product(self, factors: Factors) -> Blocks:
        """Z_p = U_p W_p^T."""
        return factors.U @ factors.W.mT

    def predictions(self, factors: Factors) -> Matrix:
        """A Z, without forming Z where the factors are smaller."""
        return forward(self.operator, factors)

    def penalty(self, factors: Factors) -> float:
        return as_protocol(self.problem.gauge, Factorised).factor_penalty(factors)

    def value(self, factors: Factors) -> float:
        """The objective of (14)."""
        return self.problem.datafit.value(self.predictions(factors)) + self.problem.beta * self.penalty(factors)

    def data_gradient(self, factors: Factors) -> Factors:
        """Of F alone: G W and G^T U with G = A* grad F(A Z)."""
        return adjoint(self.operator, self.problem.datafit.grad(self.predictions(factors)), factors)

    def gradient(self, factors: Factors) -> Factors:
        """grad_U = G W + beta S_U and grad_W = G^T U + beta S_W, S a subgradient of the penalty; S = (U, W) for l2."""
        price = as_protocol(self.problem.gauge, FactorSteps).factor_subgradient(factors)
        return plus(self.data_gradient(factors), price, self.problem.beta)

    def prox(self, factors: Factors, step: float) -> Factors:
        """argmin_Q step * beta * penalty(Q) + 1/2 |Q - factors|^2 over feasible Q."""
        return as_protocol(self.problem.gauge, FactorSteps).factor_prox(factors, step * self.problem.beta)

    def stationarity(self, factors: Factors) -> float:
        """|gradient|; where the price has kinks or factors are constrained, the length of a unit proximal step."""
        if self.smooth:
            return norm(self.gradient(factors))
        moved = self.prox(plus(factors, self.data_gradient(factors), -1.0), 1.0)
        return norm(plus(moved, factors, -1.0))

    def feasible(self, factors: Factors) -> Factors:
        """The nearest factors that satisfy the constraints; (14) has none."""
        return factors

    def balanced(self, factors: Factors) -> Factors:
        """Factors of the same Z and m with |u_j|_C = |w_j|_R, and for the nuclear norm of least price: from its SVD."""
        if self.smooth:
            return resized(as_protocol(self.problem.gauge, Factorised).split(self.product(factors)), self.m)
        pair = as_protocol(self.problem.gauge, FactorSteps).factor_subgradient(factors)
        size = [(part * price).sum(1, keepdim=True).sqrt() for part, price in zip(factors, pair, strict=True)]
        ratio = torch.where((size[0] > 0) & (size[1] > 0), (size[1] / size[0]).sqrt(), 1.0)
        even = Factors(factors.U * ratio, factors.W / ratio)
        return even if self.penalty(even) <= self.penalty(factors) else factors

    def with_m(self, m: int) -> Self:
        return self if m == self.m else replace(self, m=m)

    def judged(self, factors: Factors) -> Verdict:
        """Z with its sound certificate, against the convex program (16)."""
        return Verdict(self.problem, certify(self.problem, self.product(factors)))

    def certificate(self, factors: Factors) -> Certificate:
        """Of the product of the factors."""
        return self.judged(factors).certificate

    def polar(self, factors: Factors) -> float:
        """Omega°(A* grad F), the left side of (20) times beta."""
        return self.problem.gauge.polar(-self.problem.gradient(self.product(factors))).upper

    def violation(self, factors: Factors) -> Violation | None:
        """The steepest columns of every block whose polar exceeds beta, weighted by how much; None if there is none.

        For the nuclear norm they are the top singular pairs of -A* grad F.
        """
        G = -self.problem.gradient(self.product(factors))
        U, W = as_protocol(self.problem.gauge, FactorSteps).steepest(G)
        excess = ((G * (U @ W.mT)).sum((1, 2)) / self.problem.beta - 1).clamp(min=0)
        if not bool(excess.any()):
            return None
        root = excess.sqrt()[:, None, None]
        return Violation(self, factors, Factors(U * root, W * root))

    def appended(self, factors: Factors, columns: Factors) -> tuple["FactoredProgram", Factors]:
        """The program and factors with more columns, but not more than :attr:`width`, which is always enough."""
        U, W = (torch.cat(pair, 2) for pair in zip(factors, columns, strict=True))
        if U.shape[2] > self.width or self.smooth:
            U, W = as_protocol(self.problem.gauge, Factorised).split(U @ W.mT)
            if self.smooth:  # singular values fall: columns beyond the largest rank are zero
                U, W = U[:, :, : _rank(U)], W[:, :, : _rank(U)]
        m = max(self.m, U.shape[2])
        return self.with_m(m), resized(Factors(U, W), m)


def _rank(U: Float[Tensor, "p a k"]) -> int:
    """The last column that is not rounding in some block."""
    size = torch.linalg.vector_norm(U, dim=1).amax(0)
    alive = (size > 1e-8 * size.max()).nonzero()
    return int(alive.max()) + 1 if len(alive) else 1
