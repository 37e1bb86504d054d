"""Which way to train a ReLU network, and how to prove how good it is."""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.column_generation import ColumnGeneration, Training
from bidual.driver import Callback
from bidual.patterns import count_bound
from bidual.patterns.reduction import reduce_rank
from bidual.polar import Faces, LocalSearch, NeuronOracle, Neurons
from bidual.relu import ReluProblem

RELU_SOLVERS = ("column_generation", "interior_point", "frank_wolfe", "closed_form")
_AFFORDABLE_FACES = 400_000  # a question to the exact oracle then takes about a second


def face_count(n: int, r: int) -> int:
    """The most cells that the flats of dimension two and more of n rows of rank r can have."""
    return sum(comb(n, r - k) * count_bound(n - (r - k), k) for k in range(2, r + 1)) if r > 1 else 2


@dataclass(frozen=True, eq=False)
class ReluTrainer:
    """Trains on fixed samples X, for any targets and beta.

    Attributes:
        X: the samples, with a constant column if neurons have a bias.
        patterns: "exact" (all of them, or a refusal), a number of search starts, or "auto": exact if affordable.
        seed: of the search's starts.
    """

    X: Float[Tensor, "n d"]
    patterns: int | str = "auto"
    seed: int = 0

    @cached_property
    def oracle(self) -> NeuronOracle:
        """The exact oracle where it is asked for or affordable, a local search elsewhere."""
        if self.patterns == "exact":
            return Faces(self.X)
        if self.patterns == "auto":
            rank = reduce_rank(self.X.detach().to("cpu", torch.float64).numpy()).rank
            if face_count(len(self.X), rank) <= _AFFORDABLE_FACES:
                return Faces(self.X)
        starts = 256 if self.patterns == "auto" else int(self.patterns)
        return LocalSearch(self.X, starts=starts, seed=self.seed)

    def beta_max(self, problem: ReluProblem) -> float:
        """The steepest neuron at the zero network; if it was only searched for, a lower bound of that."""
        V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
        peak = self.oracle.peaks(V).bracket.lower
        rounding = problem.over(self.X[:0]).rounding_of_polar(V)
        return 0.0 if peak <= rounding else peak

    def train(
        self,
        problem: ReluProblem,
        *,
        solver: str = "auto",
        tol: float = 1e-4,
        max_steps: int | None = None,
        max_time: float | None = None,
        start: Neurons | None = None,
        callback: Callback | None = None,
        prove: bool = True,
    ) -> Training:
        rounds = 500 if max_steps is None else max_steps
        return ColumnGeneration().train(
            problem, self.oracle, tol=tol, max_rounds=rounds, max_time=max_time, start=start, callback=callback
        )
