"""Plans for networks over all neurons: which oracles and solvers, in which order."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns.reduction import reduce_rank
from bidual.polar import Neurons
from bidual.problems.neuron_problem import NeuronProblem
from bidual.problems.solution import DEFAULT_LIMITS, Callback, Limits, Solution
from bidual.runtime.threads import one_thread
from bidual.solvers.plan import Plan, run
from bidual.types import Matrix

ORACLES = ("auto", "exact", "search")
MOMENT = 0.1  # seconds that a stage has at least


class NeuronPlan(ABC):
    """How networks on fixed samples are trained, for any targets and beta.

    Attributes:
        X: the samples, with a constant column if neurons have a bias.
        oracle: "exact" (all patterns, or a refusal), "auto" (all of them if that is affordable), or "search". Where not
            all patterns are looked at, a proof follows the search.
        n_starts: of the search, "auto" for a number that suits it.
        seed: of the search's starts.
    """

    X: Float[Tensor, "n d"]
    oracle: str
    n_starts: int | str
    seed: int

    def __post_init__(self) -> None:
        if self.oracle not in ORACLES:
            raise ValueError(f"oracle must be one of {list(ORACLES)}, got {self.oracle!r}.")
        if self.n_starts != "auto" and not (type(self.n_starts) is int and self.n_starts > 0):
            raise ValueError(f"n_starts must be 'auto' or a positive whole number, got {self.n_starts!r}.")

    @cached_property
    def rank(self) -> int:
        """Of the samples."""
        return reduce_rank(self.X.detach().to("cpu", torch.float64).numpy()).rank

    @abstractmethod
    def check(self, problem: Any, solver: str, max_time: float | None = None) -> None:
        """Refuse before any work what the named solver is not for."""

    @abstractmethod
    def stages(self, problem: Any, limits: Limits, solver: str, prove: bool, candidates: tuple[Matrix, ...]) -> Plan:
        """The solvers to run one after another; see :meth:`train`."""

    @abstractmethod
    def steepest(self, V: Matrix) -> float:
        """How steep the steepest neuron at V is that the plan's oracle finds."""

    def beta_max(self, problem: NeuronProblem) -> float:
        """The steepest neuron at the zero network; if it was only searched for, a lower bound of that."""
        problem = problem.to(torch.float64)
        V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
        with one_thread():
            peak = self.steepest(V)
        nothing = problem.restricted_to(problem.X.new_zeros(0, problem.neuron_size))
        return 0.0 if peak <= nothing.likely_rounding_of_polar(V) else peak

    def train(
        self,
        problem: NeuronProblem,
        limits: Limits = DEFAULT_LIMITS,
        *,
        solver: str = "auto",
        start: Neurons | None = None,
        callback: Callback | None = None,
        prove: bool = True,
        candidates: tuple[Matrix, ...] = (),
    ) -> Solution:
        """Train with a named solver, or the best ones for this problem, and certify over all patterns.

        Without ``prove`` nothing is done for the certificate that training does not need. ``candidates`` are further
        dual points to try.
        """
        problem = problem.to(torch.float64)
        self.check(problem, solver, limits.max_time)
        with one_thread():  # many small products: threads would only wait for each other
            stages = self.stages(problem, limits, solver, prove, candidates)
            return run(problem, stages, limits.tol, start=start, callback=callback)
