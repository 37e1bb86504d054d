"""Certificates: dual <= optimum <= primal, in float64, at the returned point."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

import torch
from torch import Tensor

from bidual.gauges import Group
from bidual.numerics.rounding import UNIT, gamma, rounded_up
from bidual.operators import NeuronOperator
from bidual.operators.parallel import ParallelOperator
from bidual.polar import NeuronOracle, oracle_for
from bidual.polar.products.witness import ProductProof, Witness
from bidual.polar.subnetworks.witness import ParallelProof
from bidual.problems.problem import Problem
from bidual.runtime.registry import Part
from bidual.types import Blocks, Matrix

_MOST_SLACK = 1e-3  # of beta, what the bound of a recheck may leave to its own rounding


class Scope(Enum):
    """The optimum that a certificate bounds."""

    BLOCKS = "the convex program over the given activation patterns"
    ALL_PATTERNS = "the network over all activation patterns"


class SoundnessError(AssertionError):
    """A dual value exceeds a primal value: a bug."""


@dataclass(frozen=True, eq=False)
class Certificate(Part):
    """Bounds on an optimum with their witnesses. Both hold in real arithmetic: they allow for rounding.

    Attributes:
        primal: P(Z) at ``point``, rounded up.
        dual: -F*(V) at ``dual_point``, which is dual feasible, rounded down; a lower bound of the optimum.
        point: the lifted variable Z.
        dual_point: the witness V of the lower bound.
        polar: an upper bound of Omega°(-A* V), at most beta.
        scope: which optimum is bounded.
        scale: the data term of the prediction zero; a gap below 1e-13 times it is rounding, see ``exhausted``.
        witness: multipliers that prove ``polar`` without any search, where the product bound was used.
    """

    primal: float
    dual: float
    point: Blocks = field(repr=False)
    dual_point: Matrix = field(repr=False)
    polar: float
    scope: Scope = Scope.BLOCKS
    scale: float = 0.0
    witness: Witness | None = field(default=None, repr=False)
    name = "certificate"

    @property
    def gap(self) -> float:
        """primal - dual, a bound of the distance of P(Z) to the optimum."""
        return max(self.primal - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """gap / primal, in [0, 1] because losses and gauges are non-negative."""
        if not math.isfinite(self.primal):
            return math.inf
        return self.gap / self.primal if self.primal > 0 else 0.0

    @property
    def exhausted(self) -> bool:
        """Whether the gap is down to the float64 rounding of differences of the data term."""
        return self.gap <= 1e-13 * self.scale

    def within(self, tol: float) -> bool:
        """Whether the relative gap is at most ``tol``, or as small as float64 allows."""
        return self.relative_gap <= tol or self.exhausted

    def with_dual_of(self, other: "Certificate") -> Self:
        """This point with the better of the two lower bounds; both must be of one problem."""
        if other.scope is not self.scope:
            raise ValueError(f"a dual of scope {other.scope.name} does not bound scope {self.scope.name}.")
        if other.dual <= self.dual:
            return self
        _assert_weak_duality(self.primal, other.dual)
        return replace(self, dual=other.dual, dual_point=other.dual_point, polar=other.polar, witness=other.witness)

    def recheck(self, problem: Problem, oracle: NeuronOracle | None = None) -> bool:
        """Recompute both bounds from the witnesses alone; True if they hold for ``problem`` (to float64 rounding).

        A certificate over all patterns needs an oracle for them, such as ``bidual.polar.Faces(X)``, unless it has a
        witness of its own.
        """
        again = problem.to(torch.float64)
        if oracle is None and self.witness is not None:
            oracle = proved_by(again, self.witness)
        if (self.scope is Scope.ALL_PATTERNS) is (oracle is None):
            how = "with" if oracle is None else "without"
            raise ValueError(f"a certificate of scope {self.scope.name} is rechecked {how} an oracle, like Faces(X).")
        return self.holds(again, polar_bound(again, oracle))

    def holds(self, problem: Problem, polar: "PolarBound", rounding: float = 0.0) -> bool:
        """Whether both bounds are true at the stored points by another bound of the polar.

        ``rounding`` is what ``polar`` itself allows for. Where beta is tiny, that is more than a billionth of it, and a
        dual point that was scaled to pay for it must not be asked to pay again; more than a thousandth is refused.
        """
        problem = problem.to(torch.float64)
        fits = tuple(self.point.shape) == problem.operator.block_shape
        fits = fits and self.dual_point.shape == problem.datafit.targets.shape
        if not fits or not all(math.isfinite(x) for x in (self.primal, self.dual, self.polar, self.scale)):
            return False
        if self.scale > problem.datafit.scale * (1 + 1e-9):
            return False
        V = problem.datafit.into_domain(self.dual_point)
        moved = float(torch.linalg.vector_norm(V - self.dual_point)) > 1e-9 * float(torch.linalg.vector_norm(V))
        slack, found = 2 * (problem.rounding_of_polar(V) + rounding), polar(V)
        least = min(problem.beta, self.polar + 1e-300)
        feasible = rounding <= _MOST_SLACK * problem.beta and found <= least * (1 + 1e-9) + slack  # not where NaN
        if moved or not feasible:
            return False
        primal = problem.upper_bound(self.point, problem.operator.forward(self.point))
        dual, allowed = -problem.datafit.conjugate(V), 1e-9 * abs(self.primal)
        weak = self.dual <= self.primal + allowed
        return weak and abs(primal - self.primal) <= allowed and dual >= self.dual - allowed

    def save_proof(
        self, path: str | os.PathLike[str], problem: Problem, data: str | os.PathLike[str] | None = None
    ) -> None:
        """Write a proof file (docs/proof_format.md), which ``bidual check`` proves again in exact arithmetic.

        Args:
            path: the file; its folder must exist.
            problem: what the certificate is of.
            data: a second file for samples, targets and weights; the proof then holds its SHA-256 only.

        Raises:
            NoProofError: for certificates of a kind that proof files do not describe yet, by name.
        """
        from bidual.problems.proof_file import save_proof

        save_proof(self, problem, path, data)

    def __str__(self) -> str:
        return (
            f"primal {self.primal:.9g}, dual {self.dual:.9g}, relative gap {self.relative_gap:.2e}, "
            f"scope {self.scope.name}: {self.scope.value}"
        )


def certify(
    problem: Problem, Z: Blocks, candidates: Sequence[Matrix] = (), oracle: NeuronOracle | None = None
) -> Certificate:
    r"""The certificate of Z: P(Z), and the best lower bound from grad F(A Z) and the solver's dual candidates.

    Every candidate is moved into dom F*, scaled by the s in [0, beta / Omega°(-A* V)] that maximises -F*(s V), and
    evaluated. It is sound at any Z and for any candidates. With an ``oracle``, the polar is over all activation
    patterns, and so is the scope.
    """
    problem, Z = problem.to(torch.float64), Z.to(torch.float64)
    scope = Scope.BLOCKS if oracle is None else Scope.ALL_PATTERNS
    if not bool(torch.isfinite(Z).all()):
        return _no_point(problem, Z, scope)
    predictions = problem.operator.forward(Z)
    trials = [problem.datafit.grad(predictions), *(V.to(torch.float64) for V in candidates)]
    polar = polar_bound(problem, oracle)
    found = [judge(problem, Z, V, polar, scope, predictions) for V in trials]
    return max(found, key=lambda certificate: certificate.dual)


PolarBound = Callable[[Matrix], float]


def judge(
    problem: Problem,
    Z: Blocks,
    V: Matrix,
    polar: PolarBound,
    scope: Scope,
    predictions: Matrix | None = None,
    witness: Witness | None = None,
) -> Certificate:
    """The certificate of Z by one dual candidate V; ``predictions`` is A Z, if already computed.

    V is moved into dom F* first; ``polar`` is an upper bound of the polar there, over ``scope``. Any V is valid.
    ``witness`` is what ``polar`` rests on, if it can be kept.
    """
    problem, Z, V = problem.to(torch.float64), Z.to(torch.float64), V.to(torch.float64)
    if not bool(torch.isfinite(Z).all()):
        return _no_point(problem, Z, scope)
    V = _into_domain(problem, V)
    bound = polar(V) + problem.rounding_of_polar(V)
    predictions = problem.operator.forward(Z) if predictions is None else predictions.to(torch.float64)
    primal = problem.upper_bound(Z, predictions)
    dual, V, bound = _lower_bound(problem, V, bound)
    _assert_weak_duality(primal, dual)
    return Certificate(primal, dual, Z, V, bound, scope, problem.datafit.scale, witness)


def polar_bound(problem: Problem, oracle: NeuronOracle | None = None) -> PolarBound:
    """Omega°(-A* V) of the problem's own gauge and operator, or over all patterns."""
    if oracle is None:
        return lambda V: problem.gauge.polar(-problem.operator.adjoint(V)).upper
    return lambda V: oracle.steepest(V).bracket.upper


def proved_by(problem: Problem, witness: Witness) -> NeuronOracle:
    """The oracle of a witness, for the rows of a program over neurons."""
    operator = problem.operator
    if isinstance(operator, ParallelOperator):
        return ParallelProof(operator.X, operator.widths, witness)
    if not isinstance(operator, NeuronOperator) or not isinstance(problem.gauge, Group) or operator.longest != 1:
        raise ValueError(f"a witness is for neurons under weight decay, got {type(operator).__name__}.")
    return oracle_for(operator.X, operator.readout, lambda X: ProductProof(X, witness))


def _into_domain(problem: Problem, V: Matrix) -> Matrix:
    """A point of dom F* near V, zero if V is not finite."""
    V = problem.datafit.into_domain(V)
    return V if bool(torch.isfinite(V).all()) else torch.zeros_like(V)


def _no_point(problem: Problem, Z: Tensor, scope: Scope) -> Certificate:
    return Certificate(math.inf, 0.0, Z, torch.zeros_like(problem.datafit.targets), 0.0, scope)


def _assert_weak_duality(primal: float, dual: float) -> None:
    if dual > primal:
        raise SoundnessError(f"dual {dual!r} exceeds primal {primal!r}; please report this problem.")


def _lower_bound(problem: Problem, V: Tensor, polar: float) -> tuple[float, Tensor, float]:
    """(dual value, feasible V, upper bound of its polar) from any V.

    A rounded V is in the domain of F*, and balanced, up to rounding; some point W within ``distance`` is so exactly. D
    is concave with D(0) = 0, so that D(t W) >= t D(W) for the t <= 1 that makes W feasible.
    """
    largest = math.inf if polar == 0 else problem.beta / polar if polar > 0 else 0.0  # NaN allows nothing
    inside = 1 - gamma(64 + 8 * V.shape[1])  # so that rounding does not leave the domain
    scale = inside * _best_scale(lambda s: -problem.datafit.conjugate(s * V), largest)
    V = scale * V
    value, distance = problem.datafit.dual_lower_bound(V)
    reach = rounded_up(scale * polar + problem.sensitivity * distance)
    share = min(problem.beta / reach, 1.0) * (1 - 8 * UNIT)
    if not (value > 0 and share > 0):  # where the polar is not finite, the share is NaN
        return 0.0, torch.zeros_like(V), 0.0
    return share * value, V, min(scale * polar, problem.beta)


def _best_scale(value: Callable[[float], float], largest: float) -> float:
    """argmax of a concave function (-inf off its domain) over [0, largest]."""
    if largest <= 1 and math.isfinite(end := value(largest)) and end >= value(largest * (1 - 1e-7)):
        return largest  # still rising at the end: concavity leaves nothing to search
    high = min(largest, 2.0)
    guess = _vertex(value, high)
    top, near = value(guess), 1e-6 * (guess or 1e-3 * high)
    if math.isfinite(top) and top >= max(value(max(guess - near, 0.0)), value(min(guess + near, high))):
        return guess  # squared loss is a parabola
    return _golden_section(value, largest, high)


def _vertex(value: Callable[[float], float], high: float) -> float:
    """Where the parabola through three points of [0, high] is highest."""
    low, middle, end = value(0.0), value(high / 2), value(high)
    curvature = low - 2 * middle + end
    if not curvature < 0:
        return high
    return min(max(high / 2 + 0.25 * high * (low - end) / curvature, 0.0), high)


def _golden_section(value: Callable[[float], float], largest: float, high: float, steps: int = 60) -> float:
    low, ratio = 0.0, (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(steps):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = value(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = value(left)
        if high - low <= 1e-9 * high:
            break
    options = [0.0, left, right, min(1.0, largest), *([largest] if math.isfinite(largest) else [])]
    return max(options, key=value)
