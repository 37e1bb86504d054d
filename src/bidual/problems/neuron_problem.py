"""What training by columns needs to know of a problem."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.polar import NeuronOracle, Neurons
from bidual.problems.problem import Problem


class NeuronProblem(ABC):
    """Training over all neurons of a kind: min F(sum_j feature(u_j) w_j^T) + beta sum_j |u_j| |w_j|.

    Attributes:
        X: the samples.
        datafit: the data term F.
        beta: what a neuron of length one with output weights of length one costs.
    """

    X: Float[Tensor, "n d"]
    datafit: Datafit
    beta: float

    @property
    def neuron_size(self) -> int:
        """How many numbers a neuron has."""
        return self.X.shape[1]

    @abstractmethod
    def restricted_to(self, neurons: Neurons) -> Problem:
        """The convex program over a dictionary of neurons, which are scaled to length one."""

    @abstractmethod
    def with_beta(self, beta: float) -> Self:
        """The same problem at another beta."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same problem in another precision; self if nothing changes."""

    @abstractmethod
    def check_oracle(self, oracle: NeuronOracle) -> None:
        """Refuse an oracle for another problem."""
