"""What a loss must know about one sample; sums, weights and intercepts live in :mod:`bidual.losses.datafit`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from bidual.losses.torch_form import TorchForm
from bidual.numerics.rounding import gamma, largest_sum, length, rounded_up
from bidual.types import Matrix

Rows = Float[Tensor, " n"]


@dataclass(frozen=True)
class ConeRows:
    r"""One constraint per sample, ``F_i f_i + A_i a_i + h_i in cone``, for interior-point solvers.

    ``on_prediction`` is F (n, r, c), ``on_auxiliary`` is A (n, r, k), ``offset`` is h (n, r); ``cone`` is
    ``"nonnegative"`` or ``"exponential"`` (then r = 3, Clarabel's order: y exp(x / y) <= z).
    """

    cone: str
    on_prediction: Tensor
    on_auxiliary: Tensor
    offset: Tensor


@dataclass(frozen=True)
class Epigraph:
    r"""A loss as ``min_a  1/2 q_f |f|^2 + <l_f, f> + 1/2 q_a |a|^2 + <l_a, a> + const`` under :class:`ConeRows`.

    ``quadratic_*`` are scalars per coordinate, ``linear_*`` are (n, c) and (n, k).
    """

    quadratic_prediction: float
    linear_prediction: Tensor
    quadratic_auxiliary: Tensor
    linear_auxiliary: Tensor
    constraints: tuple[ConeRows, ...] = ()


class Repair(NamedTuple):
    """What is between a V of rounded numbers and a point of the domain in real arithmetic.

    Attributes:
        distance: how far away that point is, in the Frobenius norm.
        shrinks: by which share entries of V are smaller there, at most; the domain is convex and l*(0) = 0, so that l*
            grows by at most this share of its terms.
        cost: what else the conjugate grows by.
    """

    distance: float = 0.0
    shrinks: float = 0.0
    cost: float = 0.0


class Loss(ABC):
    """A convex, non-negative loss l(p, y) of one prediction row p and one target row y.

    Public methods take all rows at once, P (n, c) and Y (n, c), check the shapes and return one number or one row per
    sample; subclasses write the underscore twins. ``smoothness`` is a Lipschitz constant of the gradient, or None
    where it has none; ``smooth`` says whether there is a gradient everywhere, or the loss has kinks; ``slope`` is a
    Lipschitz constant of the loss itself, per entry if it is separable and per row if not, or None where it grows
    faster. ``separable`` says that l is a sum over the entries of the row, ``shift_invariant`` that
    adding one number to all entries changes nothing (intercepts then sum to zero, to be unique), ``translates`` that l
    is a function of p - y, and ``half_square`` that it is 1/2 |p - y|^2. Values are computed to gamma(c + 16) of
    themselves, a weight included, at a p and y that were rounded before (see :meth:`compared_with`); exp and log count
    as eight roundings, four units in the last place.

    How labels become targets: two classes share one output with targets -1 and +1 where ``one_output`` says so; else
    every class has an output, with target 1 for its own samples and ``other_class`` for those of the others.
    ``classification`` says that only such targets are allowed, ``counts`` that targets are numbers of at least zero,
    never classes. ``gives_probabilities`` says that outputs tell class
    probabilities: where classes are drawn with probabilities q, the outputs of least expected loss determine q, and
    ``_probabilities`` finds it; the largest is that of the class of the largest output. A subclass with a ``name`` is
    known by it from then on, in this package or elsewhere; settings are the fields of a frozen dataclass.
    ``torch_form`` is what torch has for this loss; it is not inherited.
    """

    name: ClassVar[str]
    classification: ClassVar[bool] = False
    one_output: ClassVar[bool] = True
    other_class: ClassVar[float] = 0.0
    gives_probabilities: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    smoothness: float | None = None
    slope: float | None = None
    separable: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    translates: ClassVar[bool] = False
    half_square: ClassVar[bool] = False
    torch_form: ClassVar[TorchForm | None] = None
    _probabilities: Callable[[Tensor], Tensor]  # a method, of those that give them

    def __init_subclass__(cls, **settings: Any) -> None:
        """Refuse methods that only look like overrides, because certificates rest on them, and promises not kept."""
        super().__init_subclass__(**settings)
        if "torch_form" not in vars(cls):
            cls.torch_form = None  # what torch has for a loss, it need not have for another that extends it
        for name in ("balance", "repair", "hessian", "summed_hessian", "epigraph"):
            if f"_{name}" in vars(cls):
                raise TypeError(f"{cls.__name__} defines _{name}, which nothing calls; call it {name}.")
        if cls.gives_probabilities and not hasattr(cls, "_probabilities"):
            raise TypeError(f"{cls.__name__} says gives_probabilities; define _probabilities, or leave that out.")

    @property
    def smooth(self) -> bool:
        """Whether the gradient is continuous; it may grow too fast for a Lipschitz constant."""
        return self.smoothness is not None

    def value(self, P: Matrix, Y: Matrix) -> Rows:
        """l(p_i, y_i) for every row."""
        _same_shape(P, Y)
        return self._value(P, Y)

    def grad(self, P: Matrix, Y: Matrix) -> Matrix:
        """The gradient in p; at a kink, one subgradient."""
        _same_shape(P, Y)
        return self._grad(P, Y)

    def conjugate(self, V: Matrix, Y: Matrix) -> Rows:
        """l*(v_i, y_i) = sup_p <v_i, p> - l(p, y_i); +inf off its domain."""
        _same_shape(V, Y)
        return self._conjugate(V, Y)

    def prox(self, P: Matrix, Y: Matrix, step: Tensor | float, start: Matrix | None = None) -> Matrix:
        """argmin_q step * l(q, y) + 1/2 |q - p|^2; ``step`` is a scalar or one number per row, shape (n, 1).

        ``start`` is a guess of the answer, for losses that iterate.
        """
        _same_shape(P, Y)
        step = torch.as_tensor(step, dtype=P.dtype, device=P.device)
        if step.ndim and tuple(step.shape) != (len(P), 1):
            raise ValueError(f"step must be a number or of shape ({len(P)}, 1), got {tuple(step.shape)}.")
        return self._prox(P, Y, step, P if start is None else start)

    def terms(self, V: Matrix, Y: Matrix) -> Rows:
        r"""A bound on what l*(v_i, y_i) is added up from, for V in the interior of the domain.

        The computed conjugate of c entries is off by at most gamma(c + 13) times it, also where v_i was rounded before
        (twice) and with a weight, and every l* of a part of the entries is at most as large. gamma(c + 16) is paid for:
        three roundings are left for those of this bound.
        """
        _same_shape(V, Y)
        return self._terms(V, Y)

    def into_domain(self, V: Matrix, Y: Matrix) -> Matrix:
        """A point of dom l* near V, and V itself if it lies there already."""
        _same_shape(V, Y)
        return self._into_domain(V, Y)

    def curvature(self, P: Matrix, Y: Matrix) -> Matrix:
        """The diagonal of the Hessian where it exists (zero where the loss is linear)."""
        _same_shape(P, Y)
        return self._curvature(P, Y)

    def hessian(self, P: Matrix, Y: Matrix) -> Float[Tensor, "n c c"]:
        """The Hessian of every row's loss where it exists."""
        return torch.diag_embed(self._curvature(P, Y))

    def summed_hessian(self, P: Matrix, Y: Matrix, weight: Float[Tensor, "n 1"]) -> Float[Tensor, "c c"]:
        """sum_i w_i Hessian of l at p_i, what Newton's method for an intercept needs."""
        return torch.diag((weight * self._curvature(P, Y)).sum(0))

    def local_smoothness(self, P: Matrix, reach: float) -> float | None:
        """A Lipschitz constant of the gradient within ``reach`` of P, None where the loss has kinks."""
        return self.smoothness

    def steepness(self, P: Matrix, Y: Matrix, weight: Float[Tensor, "n 1"], reach: float) -> float:
        """A Lipschitz constant of sum_i w_i l(p_i, y_i) within ``reach`` of P, infinite where there is none.

        Slopes are right to a thousandth, but for those of saturated losses, which are differences of nearly equal
        numbers: they are right to a few roundings of the steepest slope.
        """
        everywhere = self.lipschitz(weight, Y.shape[1])
        bounds = [] if everywhere is None else [rounded_up(everywhere)]
        near = self.local_smoothness(P, reach)
        if near is not None:
            saturated = 0.0 if everywhere is None else gamma(P.shape[1] + 32) * everywhere
            slope = length(weight * self.grad(P, Y)) * 1.001 + saturated
            bounds.append(rounded_up(slope + near * float(weight.max()) * reach))
        return min(bounds, default=math.inf)

    def lipschitz(self, weight: Float[Tensor, "n 1"], n_outputs: int) -> float | None:
        """A Lipschitz constant of sum_i w_i l(p_i, y_i) in the Frobenius norm, or None if it grows faster."""
        if self.slope is None:
            return None
        return self.slope * math.sqrt(n_outputs if self.separable else 1) * length(weight[:, 0])

    def compared_with(self, Y: Matrix) -> Matrix:
        """What predictions are compared with: a computed value is the loss at a prediction that is off by at most three
        roundings of itself and of these numbers, times the slope there; four are paid for."""
        return Y

    def best_offset(self, P: Matrix, Y: Matrix, weight: Float[Tensor, "n 1"]) -> Float[Tensor, " c"] | None:
        """The b with the least sum of w_i l(p_i + b, y_i) where a formula has it, else None."""
        return None

    def balance(self, V: Matrix, Y: Matrix, weight: Float[Tensor, "n 1"]) -> Matrix:
        r"""Change V, which lies in the weighted domain, so that 1^T V = 0 and it stays there.

        The dual of an unpenalised intercept. Every domain is convex and contains 0, so shrinking entries is safe: the
        heavier of the positive and negative entries of each column is scaled down.
        """
        positive, negative = V.clamp(min=0), V.clamp(max=0)
        up, down = positive.sum(0), -negative.sum(0)
        level = torch.minimum(up, down)
        return positive * _ratio(level, up) + negative * _ratio(level, down)

    def repair(self, V: Matrix, Y: Matrix, weight: Float[Tensor, "n 1"], balanced: bool) -> Repair:
        """How near V, in the interior of the weighted domain up to rounding, is to a point of it; with ``balanced``, to
        one with 1^T V = 0.

        The heavier side of a column, at least half of it, shrinks by what it is too heavy: by 2 |sum v| / sum |v| at
        most, and by a thousandth of that more because sum |v| is rounded.
        """
        if not balanced:
            return Repair()
        V = V[:, V.any(0)]
        sizes = [largest_sum(column) for column in V.abs().T]
        worst = 1.001 * max((2 * off / size for off, size in zip(imbalances(V), sizes, strict=True)), default=0.0)
        return Repair(rounded_up(worst * length(V)), worst) if worst else Repair()

    @abstractmethod
    def epigraph(self, Y: Matrix) -> Epigraph:
        """The loss as a conic program, for interior-point solvers."""

    def check_targets(self, Y: Matrix) -> None:
        """Raise a ValueError if Y is not a target of this loss; any real number is one by default."""
        return

    def n_outputs(self, n_classes: int) -> int:
        """How many outputs a network needs for so many classes."""
        return 1 if n_classes == 2 and self.one_output else n_classes

    def encode(self, codes: NDArray[np.integer], n_outputs: int) -> NDArray[np.float64]:
        """The targets Y (n, n_outputs) of samples of classes 0, 1, ..."""
        if self.counts:
            raise ValueError(
                f"{self.name} loss is for counts, not for classes; use 'squared' or 'log_loss' for labels."
            )
        if n_outputs > 1:
            return np.where(np.eye(n_outputs, dtype=bool)[codes], 1.0, self.other_class)
        if not self.one_output:
            raise ValueError(f"{self.name} needs one output per class, but the network has one output; use 'logistic'.")
        return np.where(codes == 1, 1.0, -1.0)[:, None]

    def mean(self, P: Tensor) -> Tensor:
        """What outputs, in the last axis, say of targets: by default they are predictions themselves."""
        return P

    def likeliest(self, P: Matrix) -> Int[Tensor, " n"]:
        """The class of every row of outputs: the first of the largest, or for one output the second where it is > 0."""
        return P.argmax(1) if P.shape[1] > 1 else (P[:, 0] > 0).to(torch.int64)

    def check_probabilities(self) -> None:
        """Raise a ValueError where outputs tell no probabilities."""
        if not self.gives_probabilities:
            raise ValueError(
                f"{self.name} loss gives no probabilities; use loss='log_loss' or 'squared', or the scores of "
                "decision_function."
            )

    def probabilities(self, P: Matrix) -> Float[Tensor, "n k"]:
        """The probability of every class, two of them for one output; the first of the largest is ``likeliest``."""
        self.check_probabilities()
        return _told_apart(self._probabilities(P), self.likeliest(P))

    @abstractmethod
    def _value(self, P: Tensor, Y: Tensor) -> Tensor: ...

    @abstractmethod
    def _grad(self, P: Tensor, Y: Tensor) -> Tensor: ...

    @abstractmethod
    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor: ...

    @abstractmethod
    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor: ...

    @abstractmethod
    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor: ...

    @abstractmethod
    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor: ...

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        """For conjugates that are sums of v^2, v y and v."""
        return 2 * (V.square() + (V * Y).abs() + V.abs()).sum(1)


def imbalances(V: Matrix) -> list[float]:
    """An upper bound of |sum_i v_ik| for every column."""
    return [max(largest_sum(column), largest_sum(-column), 0.0) for column in V.T]


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole.clamp(min=torch.finfo(whole.dtype).tiny), torch.zeros_like(whole))


def _told_apart(shares: Tensor, likeliest: Tensor) -> Tensor:
    """Where rounding made the share of the likeliest class equal to an earlier one, it gets one or two units more."""
    late = shares.argmax(1) != likeliest
    own = torch.arange(shares.shape[1], device=shares.device) == likeliest[:, None]
    return shares + 2.0**-52 * (late[:, None] & own).to(shares)


def _same_shape(A: Tensor, Y: Tensor) -> None:
    if A.shape != Y.shape:
        raise ValueError(f"predictions and targets must have one shape, got {tuple(A.shape)} and {tuple(Y.shape)}.")
