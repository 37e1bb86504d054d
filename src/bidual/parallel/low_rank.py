"""Training on the rank-r part of the samples, with a guarantee for all of them (PR section 3.1)."""

from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.certificate import Certificate, Scope, judge
from bidual.column_generation import Training
from bidual.datafit import Datafit
from bidual.parallel.problem import ParallelProblem
from bidual.parallel.training import ParallelTrainer


@dataclass(frozen=True)
class LowRankGuarantee:
    r"""p* <= p_r <= p* times a factor: PR Theorem 2, corrected.

    Predictions of a network on X and on X_r differ by at most sqrt(m) sigma_(r+1) times its path norm, m = m_1 m_2 ...
    first-layer units. The best first layer for X_r lies in its row space, where X and X_r agree. So

        R-Lipschitz losses:  1 + s R,   s = sqrt(m) sigma_(r+1) / beta;   the paper prints the square of it;
        squared loss:        (1 + s sqrt(F(0) / 2))^2,

    the latter from F(f + e) <= F(f) + |e| sqrt(2 F(f)) + |e|^2 / 2, path norm <= p* / beta and p* <= F(0). It grows
    with the targets, as it must: the printed bound, which does not, is false.

    Attributes:
        rank: r.
        sigma: the largest singular value that was cut.
        factor: as above, None for a loss that is neither.
        zero: F(0), the objective of the zero network; a factor that allows more says nothing.
    """

    rank: int
    sigma: float
    factor: float | None
    zero: float

    def is_vacuous(self, value: float) -> bool:
        """Whether the zero network satisfies the bound too, where the optimum is ``value``; for a larger value, such as
        the objective of a network, it may say so too early."""
        return self.factor is None or self.zero <= self.factor * value

    def __str__(self) -> str:
        if self.factor is None:
            return f"rank {self.rank}: no guarantee in advance for this loss; see the certificate."
        return f"rank {self.rank}: the objective is at most {self.factor:.4g} times the best one."


@dataclass(frozen=True, eq=False)
class LowRankTraining:
    """A network trained on X_r, judged on X.

    Attributes:
        training: on X_r, with its own certificate.
        certificate: on X, for any loss: the dual point of X_r is feasible for X up to sqrt(m_1) sigma |V|, because
            (X w)_+ and (X_r w)_+ differ by at most sigma |w|.
        guarantee: what was known before training.
    """

    training: Training
    certificate: Certificate
    guarantee: LowRankGuarantee

    @property
    def vacuous(self) -> bool:
        """Whether the guarantee says no more than what is true of the zero network, as far as is known of p*."""
        return self.guarantee.is_vacuous(self.certificate.primal)

    def __str__(self) -> str:
        says = " It says no more than the zero network does." if self.vacuous else ""
        return f"{self.guarantee}{says} After training: {self.certificate}"


def guarantee(problem: ParallelProblem, rank: int) -> LowRankGuarantee:
    """What training on the rank-``rank`` part of X guarantees for X."""
    sigma, data = _singular_values(problem.X, rank), problem.datafit
    zero = data.value(torch.zeros_like(data.targets))
    return LowRankGuarantee(rank, sigma, _factor(data, sqrt(problem.units) * sigma / problem.beta, zero), zero)


def _factor(data: Datafit, s: float, zero: float) -> float | None:
    """See :class:`LowRankGuarantee`; sample weights make squared loss steeper by the root of the largest."""
    if data.loss.half_square:
        return (1 + s * sqrt(float(data.weights.max()) * zero / 2)) ** 2
    return None if data.lipschitz is None else 1 + s * data.lipschitz


def rank_for(problem: ParallelProblem, accuracy: float) -> int:
    """The smallest rank whose guarantee is within ``accuracy`` of the optimum, relatively."""
    if not accuracy > 0:
        raise ValueError(f"accuracy must be positive, got {accuracy}.")
    if problem.datafit.lipschitz is None and not problem.datafit.loss.half_square:
        raise ValueError(
            f"{problem.datafit.loss.name} loss is neither squared nor Lipschitz, so no rank guarantees an accuracy; "
            "train and look at the certificate."
        )
    most = _rank(problem.X)
    for rank in range(1, most + 1):
        factor = guarantee(problem, rank).factor
        if factor is not None and factor <= 1 + accuracy:
            return rank
    return most


def train_low_rank(
    problem: ParallelProblem, rank: int, *, tol: float = 1e-4, max_time: float | None = None
) -> LowRankTraining:
    """Train on the rank-``rank`` part of the samples, and certify on the samples themselves."""
    known = guarantee(problem, rank)
    small = ParallelProblem(truncated(problem.X, rank), problem.datafit, problem.beta, problem.widths)
    trainer = ParallelTrainer(small.X, problem.widths)
    done = trainer.train(small, tol=tol, max_time=max_time)
    oracle = trainer.oracle(problem.datafit.targets.shape[1])
    moved = sqrt(problem.units) * known.sigma

    def polar(V: Tensor) -> float:
        return oracle.peaks(V).bracket.upper + moved * float(torch.linalg.vector_norm(V))

    certificate = judge(
        problem.over(done.neurons), done.solution.Z, done.solution.certificate.dual_point, polar, Scope.ALL_PATTERNS
    )
    return LowRankTraining(done, certificate, known)


def truncated(X: Float[Tensor, "n d"], rank: int) -> Float[Tensor, "n d"]:
    """The best approximation of X of this rank."""
    _singular_values(X, rank)
    U, s, Vt = torch.linalg.svd(X, full_matrices=False)
    return (U[:, :rank] * s[:rank]) @ Vt[:rank]


def _singular_values(X: Tensor, rank: int) -> float:
    """The largest singular value beyond ``rank``, 0 if there is none."""
    values, most = torch.linalg.svdvals(X), _rank(X)
    if not 1 <= rank <= most:
        raise ValueError(f"rank must be between 1 and the rank of X, {most}, got {rank}.")
    return float(values[rank]) if rank < len(values) else 0.0


def _rank(X: Tensor) -> int:
    values = torch.linalg.svdvals(X)
    return int((values > 1e-12 * values[0]).sum())
