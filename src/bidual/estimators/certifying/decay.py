"""The penalty of a network in the words of its training: beta, or the weight decay of torch's optimisers."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bidual.estimators.certifying.targets import Targets
from bidual.estimators.parameters import POSITIVE, one_of
from bidual.losses import Loss, TorchForm

REDUCTIONS = ("mean", "sum")
OPTIMIZERS = ("sgd", "adam", "adamw")
_DECOUPLED = (
    "adamw decays weights beside the gradient: it minimises no objective of which weight_decay would be a part; name "
    'the beta to judge the network at, certify(..., beta=..., optimizer="adamw").'
)


class DecayedBiases(NamedTuple):
    """Which biases are under weight decay, where a network has them."""

    hidden: bool = True
    output: bool = False


HIDDEN_BIASES = DecayedBiases()
_DECAYED = {
    True: DecayedBiases(True, True),
    False: DecayedBiases(False, False),
    "hidden": HIDDEN_BIASES,
    "output": DecayedBiases(False, True),
}


class Scaling(NamedTuple):
    """The beta of a problem, and what the objective of a training loop is as a multiple of the one here."""

    beta: float
    unit: float = 1.0


@dataclass(frozen=True)
class Penalty:
    """What the user says of the penalty; refused at once where it makes no sense.

    Attributes:
        beta: as this package writes it, or None.
        weight_decay: as torch's optimisers take it, or None.
        reduction: "mean" (also None) or "sum", the word of the loss in torch.
        optimizer: "sgd", "adam" or "adamw".
        decayed_bias: True, False, "hidden" or "output"; None is "hidden" beside beta and True beside weight_decay.
    """

    beta: float | None
    weight_decay: float | None = None
    reduction: str | None = None
    optimizer: str = "sgd"
    decayed_bias: bool | str | None = None

    def __post_init__(self) -> None:
        one_of(OPTIMIZERS)("optimizer", self.optimizer)
        if self.reduction is not None:
            one_of(REDUCTIONS)("reduction", self.reduction)
        self._check_bias()
        if self.beta is not None:
            self._check_beta()
        else:
            self._check_weight_decay()

    def _check_bias(self) -> None:
        given = self.decayed_bias
        plain = given is None or isinstance(given, (bool, np.bool_)) or (isinstance(given, str) and given in _DECAYED)
        if not plain:
            raise ValueError(f"decayed_bias must be True, False, 'hidden', 'output' or None, got {given!r}.")

    def _check_beta(self) -> None:
        if self.weight_decay is not None:
            raise ValueError(
                f"got both beta={self.beta!r} and weight_decay={self.weight_decay!r}, but one follows from the other; "
                "give one of them."
            )
        POSITIVE("beta", self.beta)
        if self.reduction is not None:
            raise ValueError(
                f"reduction={self.reduction!r} says what weight_decay is beside, but beta is always beside a sum of "
                "losses; leave it out, or give weight_decay."
            )

    def _check_weight_decay(self) -> None:
        if self.weight_decay is None:
            raise ValueError("certify needs beta=, or the weight_decay= that torch's optimiser had; got neither.")
        POSITIVE("weight_decay", self.weight_decay)
        if self.optimizer == "adamw":
            raise ValueError(_DECOUPLED)

    @property
    def decayed(self) -> DecayedBiases:
        """Which biases are decayed: by default all of them beside ``weight_decay``, the hidden ones beside ``beta``."""
        default = "hidden" if self.weight_decay is None else True
        given = default if self.decayed_bias is None else self.decayed_bias
        return _DECAYED[given if isinstance(given, str) else bool(given)]

    def scaling(self, loss: Loss, targets: Targets, sample_weight: ArrayLike | None) -> Scaling:
        """Of the problem with the same minimisers; see :class:`bidual.losses.TorchForm`."""
        if self.weight_decay is None:
            assert self.beta is not None
            return Scaling(float(self.beta))
        form = _torch_form(loss)
        divisor = self._divisor(form, targets, sample_weight)
        beta = form.beta(float(self.weight_decay), divisor)
        POSITIVE(f"the beta of weight_decay={self.weight_decay!r}", beta)
        return Scaling(beta, form.times / divisor)

    def _divisor(self, form: TorchForm, targets: Targets, sample_weight: ArrayLike | None) -> float:
        reduction = self.reduction or "mean"
        if reduction == "sum" or (sample_weight is None and targets.class_weight is None):
            return form.divisor(reduction, *targets.Y.shape)
        if sample_weight is None and form.class_weights:
            weights = targets.weights(None)
            assert weights is not None
            return float(weights.sum())
        raise ValueError(
            "the mean of weighted losses may be divided by the number of samples or by their weights; use "
            'reduction="sum", and weight_decay times what your mean divides by.'
        )


def _torch_form(loss: Loss) -> TorchForm:
    if loss.torch_form is None:
        raise ValueError(
            f"torch has no {loss.name} loss, so that weight_decay does not say its scale; give beta, the weight decay "
            "beside the sum of losses."
        )
    return loss.torch_form
