"""The result of a relaxation of the copositive program: a dual point, the proof of its feasibility, and factors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar.base import bound_near
from bidual.problems.certificate import Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.types import Matrix


class PolarProof(ABC):
    """Evidence for an upper bound of max { |V^T (X u)_+| : |u| <= 1 }."""

    @abstractmethod
    def polar(self, X: Float[Tensor, "n d"], V: Matrix) -> float:
        """The bound, computed from X, V and the evidence alone; infinity if it proves nothing."""


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A relaxation of the training problem over all activation patterns, solved within a time limit.

    Attributes:
        form: "patterns" for CP (19), "spike_free" for CP (20), "joint" for the pattern-free relaxation.
        V: a point of dom F*, not yet scaled.
        polar: a proved upper bound of max { |V^T (X u)_+| : |u| <= 1 }.
        dual: -F*(s V) at the best s <= beta / polar; a lower bound of the training optimum.
        value: an estimate of the relaxation's optimum from its primal side, not a bound.
        proof: of ``polar``.
        factors: rows u of every region or cone with sum u u^T = U_i, up to one factor for all; starts of networks.
        steps: number of iterations.
    """

    form: str
    V: Matrix
    polar: float
    dual: float
    value: float
    proof: PolarProof
    factors: tuple[Float[Tensor, "k d"], ...]
    steps: int

    @classmethod
    def proved(
        cls,
        problem: ReluProblem,
        form: str,
        V: Matrix,
        proof: PolarProof,
        value: float | None = None,
        factors: tuple[Float[Tensor, "k d"], ...] = (),
        steps: int = 0,
        polar: float | None = None,
    ) -> Self:
        """The result at V with the bounds that the proof gives; ``value`` is the dual bound by default."""
        polar = proof.polar(problem.X, V) if polar is None else polar
        dual = dual_value(problem, V, polar)
        return cls(form, V, polar, dual, dual if value is None else value, proof, factors, steps)

    def recheck(self, problem: ReluProblem) -> bool:
        """Recompute the bounds of the polar and the optimum from V and the proof alone; to float64 rounding."""
        V = problem.datafit.into_domain(self.V)
        moved = float(torch.linalg.vector_norm(V - self.V)) > 1e-9 * float(torch.linalg.vector_norm(V))
        polar = self.proof.polar(problem.X, self.V)
        if moved or not polar <= self.polar * (1 + 1e-9):
            return False
        return self.dual <= dual_value(problem, V, polar) + 1e-9 * abs(self.dual)


def dual_value(problem: ReluProblem, V: Matrix, polar: float) -> float:
    """The lower bound that V proves, if its polar is at most ``polar``."""
    nothing = problem.restricted_to(problem.X.new_zeros(1, problem.X.shape[1]))
    return judge(nothing, nothing.operator.zeros(), V, bound_near(problem.X, V, polar), Scope.ALL_PATTERNS).dual
