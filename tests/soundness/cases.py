"""A certificate to be checked, and the problem that it is about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.certificate import Certificate
from bidual.datafit import Datafit
from bidual.losses import LOSSES, Huber, Loss
from soundness.extended import data_term, wide

BREAKDOWNS = (FloatingPointError, OverflowError, np.linalg.LinAlgError, torch.linalg.LinAlgError)  # said, not hidden
TRANSLATING = ("squared", "absolute", "huber")


@dataclass
class Issued:
    """What one problem had certified.

    Attributes:
        labels: what the problem was: architecture, loss, gauge, solver, dtype, scope, kind of data.
        certificates: with the objective of the certified point in extended precision.
        attained: objectives of points that have nothing to do with a certificate, such as another solver's.
    """

    labels: dict[str, str]
    certificates: list[tuple[Certificate, np.longdouble]] = field(default_factory=list)
    attained: list[np.longdouble] = field(default_factory=list)
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
        weight = None if rng.random() < 0.6 else rng.uniform(0.1, 3, len(Y)).astype(np.float32).astype(np.float64)
        return cls(loss, Y, weight, bool(rng.random() < 0.4), float(np.float32(rng.uniform(0.2, 2))))

    def scaled(self, power: int) -> "Fit":
        """Targets times two to a power, where that only changes units."""
        return Fit(self.loss, self.Y * 2.0**power, self.weight, self.intercept, self.delta * 2.0**power)

    def value_scale(self, power: int) -> float:
        """What the data term is multiplied with by :meth:`scaled`."""
        return 2.0 ** (power if self.loss == "absolute" else 2 * power)

    @property
    def datafit(self) -> Datafit:
        return self.datafit_in(torch.float64)

    def datafit_in(self, dtype: torch.dtype) -> Datafit:
        made: Loss = Huber(self.delta) if self.loss == "huber" else LOSSES[self.loss]()
        weight = None if self.weight is None else torch.from_numpy(self.weight).to(dtype)
        return Datafit(made, torch.from_numpy(self.Y).to(dtype), weight, self.intercept)

    def value(self, datafit: Datafit, P: ndarray) -> np.longdouble:
        """F(P) in extended precision, at the intercept that the package thinks best, with the targets it stored."""
        b = datafit.offset(torch.from_numpy(P.astype(np.float64))).numpy() if self.intercept else np.zeros(P.shape[1])
        weight = np.ones(len(P)) if self.weight is None else self.weight
        return data_term(self.loss, self.delta, P + wide(b), wide(datafit.targets.numpy()), wide(weight))


def share_of_beta_max(rng: Generator) -> float:
    """From 1e-8 to 10."""
    return float(10.0 ** rng.uniform(-8, 1)) if rng.random() < 0.5 else float(10.0 ** rng.uniform(-3, 0))


def labels(**given: Any) -> dict[str, str]:
    return {name: str(value) for name, value in given.items()}
