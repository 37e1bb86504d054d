"""Convex losses. A new one is one file here and one line in ``LOSSES``."""

from bidual.losses.absolute import Absolute
from bidual.losses.base import ConeRows, Epigraph, Loss, MarginLoss
from bidual.losses.hinge import Hinge, SquaredHinge
from bidual.losses.huber import Huber
from bidual.losses.logistic import Logistic
from bidual.losses.softmax import Softmax
from bidual.losses.squared import Squared

LOSSES: dict[str, type[Loss]] = {
    cls.name: cls for cls in (Squared, Logistic, Softmax, SquaredHinge, Hinge, Huber, Absolute)
}

__all__ = [
    "LOSSES",
    "Absolute",
    "ConeRows",
    "Epigraph",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Softmax",
    "Squared",
    "SquaredHinge",
]
