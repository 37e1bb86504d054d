"""From a trained network to the best one of its kind, in the user's own module."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from bidual.estimators.certifying import NetworkCertificate, certify
from bidual.estimators.certifying.loading import check_loadable, load_network, room_of
from bidual.estimators.certifying.narrowing import narrowed
from bidual.estimators.certifying.verdict import Comparison
from bidual.torch.batches import Batches, gathered


@dataclass(frozen=True, eq=False)
class Finished:
    """What `finish` returns.

    Attributes:
        model: a copy of the given model with the best network that was found, or a plain copy if none was better.
        certificate: of the given network, with the lower bound that holds for both.
        objective: of ``model`` as it is, rounded up.
        improved: whether it is smaller than that of the given network.
        width: how many neurons or filters its hidden layer has.
    """

    model: nn.Module
    certificate: NetworkCertificate
    objective: float
    improved: bool
    width: int

    @property
    def relative_gap(self) -> float:
        """(objective - lower bound) / objective of ``model``: how much better another network could be at most."""
        missing = max(self.objective - self.certificate.lower_bound, 0.0)
        return missing / self.objective if self.objective > 0 else 0.0

    @property
    def verdict(self) -> str:
        """What was gained by ``model``, and what is proved about the rest, in sentences."""
        found = Comparison.of(self.certificate)
        units = found.how.partition(" ")[2].replace(",", " in your model,", 1)
        how = f"{self.width} {units}" if self.improved else ""
        return str(replace(found, best=self.certificate.unit * self.objective, how=how))


def finish(
    model: nn.Module, data: Batches, *, head: Sequence[str] | None = None, widen: bool = True, **settings: Any
) -> Finished:
    """Take a trained two-layer ReLU network, or the head of a larger model, to its optimum, with the certificate of it.

    The given model is left as it is. Its copy keeps dtype, device, the names of its layers and everything before the
    head. A model that nothing better was found for, also after rounding to its dtype, is returned as it is: finishing
    never makes a network worse.

    Args:
        model: a two-layer ReLU network, a convolution with a ReLU and a linear layer, or a larger model of which
            ``head`` names two layers.
        data: a ``torch.utils.data.DataLoader``, or other iterable, of pairs (inputs, targets), which is gone through
            once; or ``(X, y)`` as a tuple.
        head: the names of the two layers, such as ``("fc1", "fc2")``.
        widen: whether the two layers may become wider, where the best network found has more neurons. Otherwise
            the best one is returned that descents within the width find; the lower bound is over all widths.
        settings: arguments of :func:`bidual.certify`: the weight decay that the model is judged at, such as ``beta``,
            ``loss``, ``tol``, ``max_time`` and others.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"finish takes a torch module, got a {type(model).__name__}; certify takes other networks.")
    check_loadable(model, head)
    X, y = gathered(data)
    return _finished(model, certify(model, X, y, head=head, **settings), widen)


def _finished(model: nn.Module, found: NetworkCertificate, widen: bool) -> Finished:
    question, width = found.question, room_of(model, found.head)
    assert question is not None
    better = found.better
    if better is not None and not widen and better.n_neurons > width:
        better = narrowed(question, width)
    if better is not None:
        finished = copy.deepcopy(model)
        load_network(better, finished, found.head, widen)
        reached = question.objective(finished).most
        if reached < question.objective(model).least:
            return Finished(finished, found, reached, True, room_of(finished, found.head))
    return Finished(copy.deepcopy(model), found, found.objective, False, width)
