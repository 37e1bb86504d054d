"""Contract checks that ship with the package: for a loss, gauge, operator, architecture, oracle or solver of your own.

Every ``check_*`` raises an AssertionError that says which promise was broken, and by how much. They draw from the given
generator only, work in float64 and take seconds at most:

    check_loss(MyLoss(), torch.Generator().manual_seed(0))
"""

from bidual.testing.lifting import check_architecture, check_gauge, check_operator
from bidual.testing.loss import check_datafit, check_loss, example_targets
from bidual.testing.oracle import check_oracle
from bidual.testing.solver import Planted, check_solver
from bidual.testing.tools import concrete_subclasses, own_checks_only

__all__ = [
    "Planted",
    "check_architecture",
    "check_datafit",
    "check_gauge",
    "check_loss",
    "check_operator",
    "check_oracle",
    "check_solver",
    "concrete_subclasses",
    "example_targets",
    "own_checks_only",
]
