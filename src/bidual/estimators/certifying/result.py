"""What `certify` returns: bounds of a network's objective, and a better network if one was found."""

import math
import os
from dataclasses import dataclass, field

from torch import nn

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.certifying.given import Question
from bidual.estimators.certifying.loading import load_network
from bidual.estimators.certifying.verdict import Comparison
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class NetworkCertificate:
    """Bounds on how much better than a given network any other of its kind can be.

    Both bounds hold in real arithmetic: rounding is allowed for.

    Attributes:
        objective: of the network as it is, rounded up: sum of losses + beta/2 times the sum of squares of its weights
            and of the biases that are decayed; infinity where it is beyond all numbers.
        lower_bound: no two-layer ReLU network of any width has a smaller objective.
        relative_gap: (objective - lower_bound) / objective.
        certificate: the witness of the lower bound, at the best network that was found on the way.
        better: that network, if its objective is surely smaller than the given one's; None otherwise.
        better_objective: its objective, or that of the given network, rounded up.
        status: how the search for a better network ended.
        beta: the weight decay that the network is judged at.
        unit: what the objectives here are multiplied with to be those of torch, where ``weight_decay`` was given.
        constant_objective: of a constant output without any neuron, with the bias that the network may have, rounded
            up; NaN where it is not known.
        kind: what its kind of network is called.
        how: how the better network was found.
        head: the names of its layers in a larger module, if that was certified.
        question: the training problem, for :meth:`objective_of`.
        program: that problem over the neurons of the best network, for :meth:`save_proof`.
    """

    objective: float
    lower_bound: float
    relative_gap: float
    certificate: Certificate
    better: RebuildableModule | None
    better_objective: float
    status: str
    beta: float
    unit: float = 1.0
    constant_objective: float = math.nan
    kind: str = "two-layer ReLU network of any width"
    how: str = ""
    head: tuple[str, str] | None = None
    question: Question | None = field(default=None, repr=False)
    program: Problem | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """The result in sentences: the gain that was found, and what is proved about the rest.

        Percentages are shares of objectives, and never claim more than is proved.
        """
        return str(Comparison.of(self))

    def load_into(self, model: nn.Module) -> None:
        """Put the better network into a module of your own that is wide enough: two layers, or convolutional.

        Of a model that was certified with ``head=``, or one like it, the two layers of the head are changed.

        Parameters are changed in place, so that dtype, device, names and optimisers stay; neurons that the module has
        to spare become zero. Rounded to a coarser dtype, the objective may differ in its last digits.
        """
        if self.better is None:
            raise ValueError("there is nothing to load: no network better than the given one was found; keep that one.")
        load_network(self.better, model, self.head)

    def objective_of(self, model: nn.Module) -> float:
        """The objective of another module of this kind on the same samples, rounded up, such as one after `load_into`.

        Of a head, what is before it must be that of the model which was certified.
        """
        if self.question is None:
            raise ValueError("this result does not know its samples; certify the module instead.")
        return self.question.objective(model).most

    def save_proof(self, path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> None:
        """Write a proof file of the lower bound and the best network that was found.

        It is about the training problem that the network was judged by; see :meth:`bidual.Certificate.save_proof`.
        """
        if self.program is None:
            raise ValueError("this result does not know its samples; certify the module instead.")
        self.certificate.save_proof(path, self.program, data)

    def __str__(self) -> str:
        found = "" if self.better is None else f"; a network with objective {self.better_objective:.9g} was found"
        return (
            f"objective {self.objective:.9g}, lower bound {self.lower_bound:.9g}, "
            f"relative gap {self.relative_gap:.2e}{found}"
        )
