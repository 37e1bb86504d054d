"""From a trained network to the best one of its kind, in the user's own module."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from bidual.estimators.certifying import NetworkCertificate, certify
from bidual.estimators.certifying.loading import check_loadable, load_network
from bidual.torch.batches import Batches, gathered


@dataclass(frozen=True, eq=False)
class Finished:
    """What `finish` returns.

    Attributes:
        model: a copy of the given model with the best network that was found, or a plain copy if none was better.
        certificate: of the given network, with the lower bound that holds for both.
        objective: of ``model`` as it is, rounded up.
        improved: whether it is smaller than that of the given network.
    """

    model: nn.Module
    certificate: NetworkCertificate
    objective: float
    improved: bool

    @property
    def relative_gap(self) -> float:
        """(objective - lower bound) / objective of ``model``: how much better another network could be at most."""
        missing = max(self.objective - self.certificate.lower_bound, 0.0)
        return missing / self.objective if self.objective > 0 else 0.0

    @property
    def verdict(self) -> str:
        """What was gained and what is proved about the rest, in sentences."""
        return self.certificate.verdict


def finish(model: nn.Module, data: Batches, *, head: Sequence[str] | None = None, **settings: Any) -> Finished:
    """Take a trained two-layer ReLU network, or the head of a larger model, to its optimum, with the certificate of it.

    The given model is left as it is. Its copy keeps dtype, device, the names of its layers and everything before the
    head. The two layers become wider where the best network found has more neurons. A model that nothing better was
    found for, also after rounding to its dtype, is returned as it is: finishing never makes a network worse.

    Args:
        model: a module that :func:`bidual.certify` takes; of a larger one, ``head`` names two layers.
        data: a ``torch.utils.data.DataLoader``, or other iterable, of pairs (inputs, targets), which is gone through
            once; or ``(X, y)`` as a tuple.
        head: the names of the two layers, such as ``("fc1", "fc2")``.
        settings: arguments of :func:`bidual.certify`: the weight decay that the model is judged at, such as ``beta``,
            ``loss``, ``tol``, ``max_time`` and others.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"finish takes a torch module, got a {type(model).__name__}; certify takes other networks.")
    check_loadable(model, head)
    X, y = gathered(data)
    found = certify(model, X, y, head=head, **settings)
    return _finished(model, found)


def _finished(model: nn.Module, found: NetworkCertificate) -> Finished:
    assert found.question is not None
    finished = copy.deepcopy(model)
    if found.better is None:
        return Finished(finished, found, found.objective, False)
    load_network(found.better, finished, found.head, widen=True)
    reached = found.question.objective(finished)
    if reached.most < found.question.objective(model).least:
        return Finished(finished, found, reached.most, True)
    return Finished(copy.deepcopy(model), found, found.objective, False)  # rounding took what was gained
