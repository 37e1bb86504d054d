"""How three-layer parallel networks are trained: search, then proof."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.column_generation import ColumnGeneration, Training, continued
from bidual.driver import Callback
from bidual.parallel.pricing import ExactParallel
from bidual.parallel.problem import ParallelProblem
from bidual.parallel.search import ParallelSearch
from bidual.polar import NeuronOracle, Neurons
from bidual.relu import ReluProblem
from bidual.relu_training import ReluTrainer

_ROUGH = 1e-3  # the search gap at which exact questions begin to pay


@dataclass(frozen=True, eq=False)
class ParallelTrainer:
    """Trains three-layer parallel networks on fixed samples, for any targets and beta.

    It starts from the two-layer network at beta / sqrt(m_1), whose copies are a parallel network of the same value and
    often the optimum (PR, notes on the width), adds sub-networks that a search finds, and then those that exact pricing
    finds, which also proves how good the answer is.
    """

    X: Float[Tensor, "n d"]
    width: int
    seed: int = 0

    @cached_property
    def oracle(self) -> NeuronOracle:
        return ExactParallel(self.X, self.width)

    def train(
        self,
        problem: ParallelProblem,
        *,
        tol: float = 1e-4,
        max_time: float | None = None,
        start: Neurons | None = None,
        callback: Callback | None = None,
    ) -> Training:
        """Train to a certified relative gap of ``tol``."""
        first = copies(self._two_layers(problem, tol), self.width) if start is None else start
        search = ParallelSearch(self.X, self.width, seed=self.seed)
        found = ColumnGeneration().train(
            problem, search, tol=max(tol, _ROUGH), max_time=max_time, start=first, callback=callback
        )
        later = None if callback is None else continued(callback, found)
        done = ColumnGeneration().train(
            problem, self.oracle, tol=tol, max_time=max_time, start=found.neurons, callback=later
        )
        return done.after(found)

    def _two_layers(self, problem: ParallelProblem, tol: float) -> Neurons:
        """Neurons of the best two-layer network at beta / sqrt(m_1)."""
        plain = ReluProblem(self.X, problem.datafit, problem.beta / sqrt(self.width))
        return ReluTrainer(self.X, seed=self.seed).train(plain, tol=tol, prove=False).neurons


def copies(neurons: Neurons, width: int) -> Neurons:
    """Sub-networks of m_1 equal units u / sqrt(m_1): ((X W_1)_+ 1)_+ = sqrt(m_1) (X u)_+ with |W_1|_F = |u|."""
    units = neurons[:, None].expand(-1, width, -1) / sqrt(width)
    return torch.stack([units, torch.zeros_like(units)], 1).flatten(1)
