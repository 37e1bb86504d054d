"""Convex losses. A new one is one class with a name, here or anywhere else."""

from bidual.losses.base import ConeRows, Epigraph, Loss
from bidual.losses.margins import Hinge, Logistic, MarginLoss, SquaredHinge
from bidual.losses.poisson import Poisson
from bidual.losses.quantile import Quantile
from bidual.losses.residuals import Absolute, Huber, Squared
from bidual.losses.softmax import Softmax
from bidual.losses.torch_form import TorchForm
from bidual.runtime.registry import Registry

LOSSES: Registry[Loss] = Registry(Loss, "loss")


def resolve_loss(loss: object, n_outputs: int | None = None) -> Loss:
    """A loss from its name, an instance, or "auto", which is squared loss.

    Where the number of outputs is known, "log_loss" is logistic for one and softmax cross-entropy for several.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss == "log_loss" and n_outputs is not None:
        return Logistic() if n_outputs == 1 else Softmax()
    if not isinstance(loss, str) or (loss != "auto" and loss not in LOSSES):
        raise ValueError(f"loss must be 'auto', a Loss, or one of {sorted([*LOSSES, 'log_loss'])}, got {loss!r}.")
    return Squared() if loss == "auto" else LOSSES[loss]()


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
    "Poisson",
    "Quantile",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "TorchForm",
    "resolve_loss",
]
