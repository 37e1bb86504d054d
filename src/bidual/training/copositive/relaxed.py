"""Relaxations of the copositive program: their result with its proof, and the smallest equivalent problem."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.patterns.reduction import reduce_rank
from bidual.polar.base import Neurons, bound_near
from bidual.problems.certificate import Scope, judge
from bidual.problems.problem import ReluProblem
from bidual.types import Matrix

_RANK_CUT = 1e-13


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


@dataclass(frozen=True, eq=False)
class Compact:
    r"""X = X' B^T up to rounding and Y = Y' Q^T, with orthonormal columns in B and Q, at most n of each.

    Parts of neurons outside the row space of X cost and have no effect (CP A.2). Squared loss and |V^T (X u)_+| are
    invariant under rotations of the outputs, and outputs orthogonal to the rows of Y cost and have no effect. So optima
    of the problem (X', Y') are optima of (X, Y), with u = B u', W = W' Q^T and V = V' Q^T. Other losses keep their
    outputs.

    Attributes:
        given: the given problem, in float64.
        rotated: (X, Y'), for relaxations and their proofs, which account for ranks themselves.
        problem: (X', Y'), for the search of networks.
        basis: B.
        outputs: Q.
    """

    given: ReluProblem
    rotated: ReluProblem
    problem: ReluProblem
    basis: Float[Tensor, "d r"]
    outputs: Float[Tensor, "c q"]

    @classmethod
    def of(cls, problem: ReluProblem) -> Self:
        problem = problem.to(torch.float64)
        reduced = reduce_rank(problem.X.detach().cpu().numpy())
        X, basis = (torch.from_numpy(a).to(problem.X) for a in (reduced.samples, reduced.basis))
        datafit, outputs = _rotated(problem.datafit)
        rotated = replace(problem, datafit=datafit)
        return cls(problem, rotated, replace(rotated, X=X), basis, outputs)

    def neurons(self, small: Neurons) -> Neurons:
        """Neurons of the given problem."""
        return small @ self.basis.T

    def in_outputs(self, small: Float[Tensor, "*k q"]) -> Float[Tensor, "*k c"]:
        """Dual points and output weights of the given problem."""
        return small @ self.outputs.T

    def relaxed(self, small: Relaxed) -> Relaxed:
        r"""A relaxation of the rotated problem as one of the given problem.

        V = V' Q^T + E with |E| <= gamma_q |V'| |Q|, so |V^T a| <= (1 + |Q^T Q - I|)^1/2 |V'^T a| + |E| |a|, |a| <= |X|.
        """
        V, Q = self.in_outputs(small.V), self.outputs
        off = gamma(Q.shape[1] + 4) * length(small.V) * length(Q) + V.numel() * TINY
        stretched = rounded_up(small.polar * math.sqrt(1 + orthogonality_error(Q)))
        polar = rounded_up(stretched + off * length(self.given.X))
        return replace(small, V=V, polar=polar, dual=dual_value(self.given, V, polar))


def _rotated(data: Datafit) -> tuple[Datafit, Matrix]:
    """The data term with targets Y', and Q."""
    c = data.targets.shape[1]
    as_they_are = data, torch.eye(c, dtype=data.targets.dtype, device=data.targets.device)
    if not data.loss.half_square or not data.targets.numel():
        return as_they_are
    left, sizes, right = torch.linalg.svd(data.targets, full_matrices=False)
    rank = max(int((sizes > _RANK_CUT * sizes.max()).sum()), 1)
    if rank == c:
        return as_they_are
    targets, shift = left[:, :rank] * sizes[:rank], data.targets.new_zeros(rank)
    return Datafit(data.loss, targets, data.weight, data.intercept, shift), right[:rank].T
