"""What training on factors returns."""

from dataclasses import dataclass
from enum import Enum

from bidual.gauges import Factors
from bidual.problems.certificate import Certificate
from bidual.solvers.factored.program import FactoredProgram


class Ending(Enum):
    """How a run ended; the value is what to tell the user."""

    CERTIFIED = "the certified relative gap is within the tolerance"
    STATIONARY = "the method can make no more progress, and the certificate does not reach the tolerance"
    MAX_STEPS = "the step limit was reached first; raise max_steps, or tol"
    MAX_TIME = "the time limit was reached first; raise max_time, or tol"
    DIVERGED = "the objective grew beyond ten times that of the start; lower the learning rate if the method has one"


@dataclass(frozen=True)
class Moment:
    """One line of a run's history; value and gradient in the sum scaling of the program's problem."""

    step: int
    seconds: float
    value: float
    gradient_norm: float
    relative_gap: float
    m: int


@dataclass(frozen=True, eq=False)
class FactoredSolution:
    """What training returns: the factors with the best objective, their program, which may have grown, and how good
    they are.

    Attributes:
        program: with the final number of factors, and of blocks for a ReLU network.
        factors: of that program.
        certificate: of these factors, with the best dual point that was seen.
        ending: how the run ended.
        escapes: how often a saddle was left.
        n_steps, seconds, history: how it got there.
    """

    program: FactoredProgram
    factors: Factors
    certificate: Certificate
    ending: Ending
    escapes: int
    n_steps: int
    seconds: float
    history: tuple[Moment, ...]
    method: str

    @property
    def value(self) -> float:
        """The objective of (14), a sum over samples; times ``program.unit`` in the program's own scaling."""
        return self.program.value(self.factors)

    @property
    def gradient_norm(self) -> float:
        return self.program.stationarity(self.factors)
