"""What `certify` returns: bounds of a network's objective, and a better network if one was found."""

from dataclasses import dataclass

from bidual.architectures.modules import RebuildableModule
from bidual.problems.certificate import Certificate


@dataclass(frozen=True, eq=False)
class NetworkCertificate:
    """Bounds on how much better than a given network any other of its kind can be.

    Both bounds hold in real arithmetic: rounding is allowed for.

    Attributes:
        objective: of the network as it is, rounded up: sum of losses + beta/2 times the sum of squares of its weights,
            hidden biases included, output biases not; infinity where it is beyond all numbers.
        lower_bound: no two-layer ReLU network of any width has a smaller objective.
        relative_gap: (objective - lower_bound) / objective.
        certificate: the witness of the lower bound, at the best network that was found on the way.
        better: that network, if its objective is surely smaller than the given one's; None otherwise.
        better_objective: its objective, or that of the given network, rounded up.
        status: how the search for a better network ended.
    """

    objective: float
    lower_bound: float
    relative_gap: float
    certificate: Certificate
    better: RebuildableModule | None
    better_objective: float
    status: str

    def __str__(self) -> str:
        found = "" if self.better is None else f"; a network with objective {self.better_objective:.9g} was found"
        return (
            f"objective {self.objective:.9g}, lower bound {self.lower_bound:.9g}, "
            f"relative gap {self.relative_gap:.2e}{found}"
        )
