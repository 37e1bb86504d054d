"""The base class of methods that descend on factors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from bidual.gauges import Factors
from bidual.solvers.factored.program import FactoredProgram


@dataclass
class State:
    """The state of a method.

    Attributes:
        factors: the point.
        value: the objective of (14) there.
        finished: no further step of this method would help.
        slow: steps still help, but so little that the point may be a saddle.
        memory: private to the method.
    """

    factors: Factors
    value: float
    finished: bool = False
    slow: bool = False
    memory: Any = None


class Method(ABC):
    """One way to descend on factors. Settings are a frozen dataclass; what changes lives in the state.

    ``check_every`` is how many steps pass between certificates, ``max_steps`` the limit where none is given.
    """

    name: ClassVar[str]
    check_every: ClassVar[int] = 1
    max_steps: ClassVar[int] = 1000

    def refusal(self, program: FactoredProgram) -> str | None:
        """Why this method cannot take the program, in one sentence; None if it can."""
        if not program.problem.datafit.loss.smooth:
            return f"{self.name} needs a smooth loss; {program.problem.datafit.loss.name} has kinks."
        return self._refusal(program)

    def _refusal(self, program: FactoredProgram) -> str | None:
        if program.smooth:
            return None
        return f"{self.name} needs factors without constraints, priced by 1/2 (|U|^2 + |W|^2)."

    def with_seed(self, seed: int) -> Self:
        """The method with another seed, if it draws random numbers."""
        return replace(self, seed=seed) if hasattr(self, "seed") else self  # type: ignore[type-var]

    def init(self, program: FactoredProgram, factors: Factors) -> State:
        """The state to begin with."""
        return State(factors, program.value(factors))

    @abstractmethod
    def step(self, program: FactoredProgram, state: State) -> State:
        """One iteration."""
