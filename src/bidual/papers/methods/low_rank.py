"""Training on the rank-r part of the samples, with a guarantee for all of them (PR section 3.1)."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Nuclear
from bidual.losses.datafit import Datafit
from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import DEFAULT_LIMITS, Limits, Solution
from bidual.training.parallel.plan import ParallelPlan


@dataclass(frozen=True)
class LowRankGuarantee:
    r"""p* <= p_r <= p* times a factor: PR Theorem 2, corrected.

    Predictions of a network on X and on X_r differ by at most sqrt(m) sigma times its path norm, m = m_1 m_2 ... first-
    layer units, sigma = |X - X_r|. The best first layer for X_r lies in its row space, where X and X_r agree. So

        R-Lipschitz losses:  1 + s R,   s = sqrt(m) sigma / beta;   the paper prints the square of it;
        squared loss:        (1 + s sqrt(F(0) / 2))^2,

    the latter from F(f + e) <= F(f) + |e| sqrt(2 F(f)) + |e|^2 / 2, path norm <= p* / beta and p* <= F(0). It grows
    with the targets, as it must: the printed bound, which does not, is false.

    X_r is a product of rounded factors, M Q^T, and agrees with X on its row space up to |(X - X_r) Q| only: the factor
    above, with that for sigma, comes on top. All of this is measured and rounded up.

    Attributes:
        rank: r.
        sigma: an upper bound of |X - X_r|, at the largest singular value that was cut but for rounding.
        factor: as above, None for a loss that is neither.
        zero: F(0), the objective of the zero network, rounded up; a guarantee above it is vacuous.
    """

    rank: int
    sigma: float
    factor: float | None
    zero: float

    def is_vacuous(self, value: float) -> bool:
        """Whether the zero network satisfies the bound too, if the optimum is ``value``; for a larger value, such as
        the objective of a network, it may be True although the bound at the optimum is not vacuous."""
        return self.factor is None or self.zero <= self.factor * value

    def __str__(self) -> str:
        if self.factor is None:
            return f"rank {self.rank}: no guarantee in advance for this loss; see the certificate."
        return f"rank {self.rank}: the objective is at most {_printed_up(self.factor)} times the best one."


@dataclass(frozen=True, eq=False)
class LowRankSolution:
    """A network trained on X_r, judged on X.

    Attributes:
        solution: on X_r, with its own certificate.
        certificate: on X, for any loss: the dual point of X_r is feasible for X up to sqrt(m) sigma |V|, because
            (X w)_+ and (X_r w)_+ differ by at most sigma |w|.
        guarantee: in advance of training.
    """

    solution: Solution
    certificate: Certificate
    guarantee: LowRankGuarantee

    @property
    def vacuous(self) -> bool:
        """Whether the zero network satisfies the guarantee too, with the primal value in place of p*."""
        return self.guarantee.is_vacuous(self.certificate.primal)

    def __str__(self) -> str:
        vacuous = " The zero network satisfies that too." if self.vacuous else ""
        return f"{self.guarantee}{vacuous} After training: {self.certificate}"


def guarantee(problem: ParallelProblem, rank: int) -> LowRankGuarantee:
    """The guarantee for X of training on its rank-``rank`` part."""
    cut, data = _Cut.of(problem.X, rank), problem.datafit
    zero = data.upper_bound(torch.zeros_like(data.targets), 0.0)
    factors = [_factor(data, sqrt(problem.units) * size / problem.beta, zero) for size in (cut.sigma, cut.inside)]
    both = None if factors[0] is None or factors[1] is None else factors[0] * factors[1]
    return LowRankGuarantee(rank, cut.sigma, both if both in (None, 1.0) else rounded_up(both), zero)


def _factor(data: Datafit, s: float, zero: float) -> float | None:
    """See :class:`LowRankGuarantee`; sample weights make squared loss steeper by the root of the largest."""
    if data.loss.half_square:
        return 1.0 if s == 0 else (1 + rounded_up(s * sqrt(float(data.weights.max()) * zero / 2))) ** 2
    if data.lipschitz is None:
        return None
    return 1.0 if s == 0 else 1 + rounded_up(s * data.lipschitz)


def _printed_up(factor: float) -> str:
    """Four digits that are not below the number."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(factor)):.4g}"


def rank_for(problem: ParallelProblem, accuracy: float) -> int:
    """The smallest rank whose guarantee is within ``accuracy`` of the optimum, relatively."""
    if not accuracy > 0:
        raise ValueError(f"accuracy must be positive, got {accuracy}.")
    if problem.datafit.lipschitz is None and not problem.datafit.loss.half_square:
        raise ValueError(
            f"{problem.datafit.loss.name} loss is neither squared nor Lipschitz, so no rank guarantees an accuracy; "
            "train, and use the certificate."
        )
    most = _rank(problem.X)
    for rank in range(1, most + 1):
        factor = guarantee(problem, rank).factor
        if factor is not None and factor <= 1 + accuracy:
            return rank
    return most


def train_low_rank(problem: ParallelProblem, rank: int, limits: Limits = DEFAULT_LIMITS) -> LowRankSolution:
    """Train on the rank-``rank`` part of the samples, and certify on the samples themselves."""
    known = guarantee(problem, rank)
    small = ParallelProblem(_Cut.of(problem.X, rank).X_r, problem.datafit, problem.beta, problem.widths)
    plan = ParallelPlan(small.X, problem.widths)
    done = plan.train(small, limits)
    oracle = plan.parallel_oracle(problem.datafit.targets.shape[1])
    moved = sqrt(problem.units) * known.sigma

    def polar(V: Tensor) -> float:
        return rounded_up(oracle.steepest(V).bracket.upper + moved * length(V))

    program = problem.restricted_to(done.neurons)
    certificate = judge(program, done.Z, done.certificate.dual_point, polar, Scope.ALL_PATTERNS)
    return LowRankSolution(done, certificate, known)


def truncated(X: Float[Tensor, "n d"], rank: int) -> Float[Tensor, "n d"]:
    """The best approximation of X of this rank, up to rounding; X itself where nothing is cut."""
    return _Cut.of(X, rank).X_r


class _Cut(NamedTuple):
    """X_r, and bounds of |X - X_r| for X_r as it is stored and as the exact product M Q^T, and of |X q - X_r q| over
    unit vectors q of the latter's row space."""

    X_r: Float[Tensor, "n d"]
    sigma: float
    inside: float

    @classmethod
    def of(cls, X: Float[Tensor, "n d"], rank: int) -> "_Cut":
        """|X - X_r| is a proved spectral norm; the difference is off by a unit of itself, and X_r by gamma(r) |M| |Q|.
        A unit vector q = Q a has |a|^2 <= 1 / (1 - e) with e = |Q^T Q - I|."""
        X = X.detach().to(torch.float64)
        if not 1 <= rank <= (most := _rank(X)):
            raise ValueError(f"rank must be between 1 and the rank of X, {most}, got {rank}.")
        if rank == min(X.shape):
            return cls(X, 0.0, 0.0)
        U, s, Vt = torch.linalg.svd(X, full_matrices=False)
        M, Q = U[:, :rank] * s[:rank], Vt[:rank].T
        X_r = M @ Q.T
        error = gamma(rank + 4) * (length(M) * length(Q) + length(X))
        sigma = rounded_up(Nuclear().polar((X - X_r)[None]).upper + error)
        within = length((X - X_r) @ Q) + (gamma(X.shape[1] + 4) * length(X - X_r) + error) * length(Q)
        skewed = orthogonality_error(Q)
        return cls(X_r, sigma, min(rounded_up(within / (1 - skewed)), sigma) if skewed < 0.5 else sigma)


def _rank(X: Tensor) -> int:
    values = torch.linalg.svdvals(X)
    return int((values > 1e-12 * values[0]).sum())
