"""The training problem of a two-layer ReLU network, over all activation patterns."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.datafit import Datafit
from bidual.gauges import Group
from bidual.operators import NeuronOperator
from bidual.polar import Neurons
from bidual.problem import Problem


@dataclass(frozen=True, eq=False)
class ReluProblem:
    r"""min over all neurons (u_j, w_j) of F(sum_j (X u_j)_+ w_j^T) + beta sum_j |u_j| |w_j| (CP eq. 4, BM eq. 3).

    |u||w| is the least 1/2 (|u|^2 + |w|^2) among all rescalings of a neuron. The dual is max -F*(V) subject to
    |V^T (X u)_+| <= beta for all |u| <= 1 (CP eq. 11). A hidden bias is a constant column of X.
    """

    X: Float[Tensor, "n d"]
    datafit: Datafit
    beta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ValueError(f"beta must be positive and finite, got {self.beta}. Try a fraction of beta_max.")
        if self.X.ndim != 2 or len(self.X) != len(self.datafit.targets):
            raise ValueError(
                f"X must have shape (n, d) with one row per target ({len(self.datafit.targets)}), "
                f"got {tuple(self.X.shape)}."
            )

    def over(self, neurons: Neurons) -> Problem:
        """The convex program over a dictionary of neurons, which are scaled to length one."""
        norm = torch.linalg.vector_norm(neurons, dim=1, keepdim=True)
        unit = neurons / norm.clamp(min=torch.finfo(neurons.dtype).tiny)
        operator = NeuronOperator(self.X, unit, self.datafit.targets.shape[1])
        return Problem(operator, self.datafit, Group(), self.beta)

    def with_beta(self, beta: float) -> Self:
        return replace(self, beta=beta)
