"""A certificate to be checked, and the problem that it is about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.problems.certificate import Certificate
from soundness.extended import data_term, quantile, wide

BREAKDOWNS = (FloatingPointError, OverflowError, np.linalg.LinAlgError, torch.linalg.LinAlgError)  # said, not hidden
TRANSLATING = ("squared", "absolute", "quantile", "huber")
HEAVIEST = 60  # weights are up to two to this power, and down to its inverse


@dataclass(frozen=True)
class Bound:
    """An upper bound that is claimed of a number, and what the number is at least.

    Attributes:
        what: who claims it: an oracle of a polar, or the quantity that was evaluated.
        upper: the claim.
        value: attained, in extended precision.
    """

    what: str
    upper: float | np.longdouble
    value: np.longdouble


@dataclass
class Issued:
    """What one problem had certified.

    Attributes:
        labels: what the problem was: architecture, loss, gauge, solver, dtype, scope, kind of data.
        certificates: with the objective of the certified point in extended precision.
        attained: objectives of points that have nothing to do with a certificate, such as another solver's.
        bounds: that are no certificates, such as those of polars.
        false: what was claimed and is not so, such as that a certificate can be rechecked.
    """

    labels: dict[str, str]
    certificates: list[tuple[Certificate, np.longdouble]] = field(default_factory=list)
    attained: list[np.longdouble] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    refused: str = ""


Case = Callable[[Generator], Iterator[Issued]]


@dataclass(frozen=True)
class Fit:
    """A data term in both worlds."""

    loss: str
    Y: ndarray
    weight: ndarray | None
    intercept: bool
    delta: float = 1.0

    @classmethod
    def draw(cls, rng: Generator, loss: str, Y: ndarray) -> "Fit":
        weight = sample_weights(rng, len(Y))
        return cls(loss, Y, weight, bool(rng.random() < 0.4), float(np.float32(rng.uniform(0.2, 2))))

    def scaled(self, power: int) -> "Fit":
        """Targets times two to a power, where that only changes units."""
        delta = self.delta if self.loss == "quantile" else self.delta * 2.0**power
        return Fit(self.loss, self.Y * 2.0**power, self.weight, self.intercept, delta)

    def value_scale(self, power: int) -> float:
        """What the data term is multiplied with by :meth:`scaled`."""
        return 2.0 ** (power if self.loss in ("absolute", "quantile") else 2 * power)

    def of_moderate_weight(self) -> tuple["Fit", float]:
        """The same with weights of at most one, for solvers of absolute tolerances, and what they were divided by."""
        if self.weight is None:
            return self, 1.0
        unit = 2.0 ** np.ceil(np.log2(self.weight.max()))
        return replace(self, weight=self.weight / unit), float(unit)

    @property
    def datafit(self) -> Datafit:
        return self.datafit_in(torch.float64)

    def datafit_in(self, dtype: torch.dtype) -> Datafit:
        settings = {"huber": (self.delta,), "quantile": (quantile(self.delta),)}
        made = LOSSES[self.loss](*settings.get(self.loss, ()))
        weight = None if self.weight is None else torch.from_numpy(self.weight).to(dtype)
        return Datafit(made, torch.from_numpy(self.Y).to(dtype), weight, self.intercept)

    def value(self, datafit: Datafit, P: ndarray, seen: torch.Tensor | None = None) -> np.longdouble:
        """F(P) in extended precision, at the intercept that the package thinks best, with the targets it stored.

        Weights far apart leave the best intercept open, and it jumps with a rounding of P: where the package ``saw``
        these predictions a little differently, the better of both intercepts counts.
        """
        if not self.intercept:
            return self.value_at(P, datafit)
        looks = [torch.from_numpy(P.astype(np.float64)), *([] if seen is None else [seen.to(torch.float64)])]
        offsets = [wide(datafit.to(torch.float64).offset(look).numpy()) for look in looks]
        return min(self.value_at(P + b, datafit) for b in offsets)

    def value_at(self, P: ndarray, datafit: Datafit) -> np.longdouble:
        """The sum of losses at these predictions, intercept included."""
        weight = np.ones(len(P)) if self.weight is None else self.weight
        return data_term(self.loss, self.delta, P, wide(datafit.targets.numpy()), wide(weight))


def sample_weights(rng: Generator, n: int) -> ndarray | None:
    """None, moderate, all far from one, or uneven by up to 2^120; of single precision."""
    kind = rng.random()
    if kind < 0.5:
        return None
    weight = rng.uniform(0.1, 3, n).astype(np.float32).astype(np.float64)
    if kind < 0.7:
        return weight
    spread = rng.integers(-HEAVIEST, HEAVIEST + 1, n) if kind < 0.85 else rng.integers(-HEAVIEST, HEAVIEST + 1)
    return weight * 2.0**spread


def share_of_beta_max(rng: Generator) -> float:
    """From 1e-8 to 10."""
    return float(10.0 ** rng.uniform(-8, 1)) if rng.random() < 0.5 else float(10.0 ** rng.uniform(-3, 0))


def single(x: float) -> float:
    """Rounded to single precision where that has it, so that problems of both precisions are one; not so small that
    there is none in other units."""
    rounded = float(np.float32(x))
    return rounded if 0 < rounded < np.inf else max(x, 1e-240)


def labels(**given: Any) -> dict[str, str]:
    return {name: str(value) for name, value in given.items()}
