"""The training problem of a two-layer ReLU network, over all activation patterns."""

import math
from dataclasses import dataclass, replace
from typing import Self

from jaxtyping import Float
from torch import Tensor

from bidual.datafit import Datafit
from bidual.gauges import output_gauge
from bidual.norms import L2, Norm
from bidual.operators import NeuronOperator
from bidual.polar import NeuronOracle, Neurons
from bidual.problem import Problem


@dataclass(frozen=True, eq=False)
class ReluProblem:
    r"""min over all neurons (u_j, w_j) of F(sum_j (X u_j)_+ w_j^T) + beta sum_j |u_j| |w_j| (CP eq. 4, BM eq. 3).

    |u||w| is the least 1/2 (|u|^2 + |w|^2) among all rescalings of a neuron. The dual is max -F*(V) subject to
    |V^T (X u)_+| <= beta for all |u| <= 1 (CP eq. 11). A hidden bias is a constant column of X.

    Other norms may take the place of the Euclidean ones, |u|_C and |w|_R; the dual's constraint is then
    |V^T (X u)_+|_R* <= beta for all |u|_C <= 1 (BM Theorem B.1).
    """

    X: Float[Tensor, "n d"]
    datafit: Datafit
    beta: float
    hidden_norm: Norm = L2
    output_norm: Norm = L2

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
        operator = NeuronOperator(self.X, self.hidden_norm.unit(neurons), self.datafit.targets.shape[1])
        return Problem(operator, self.datafit, output_gauge(self.output_norm), self.beta)

    @property
    def weight_decay(self) -> bool:
        """Whether both norms are Euclidean, which closed forms and relaxations of the polar rely on."""
        return self.hidden_norm == self.output_norm == L2

    def check_weight_decay(self, what: str) -> None:
        """Refuse other norms, for what is only true of weight decay."""
        if not self.weight_decay:
            raise ValueError(
                f"{what} is for weight decay, norm l2 on both layers; got {self.hidden_norm.name} and "
                f"{self.output_norm.name}. Use column_generation."
            )

    def check_oracle(self, oracle: NeuronOracle) -> None:
        """Refuse an oracle for other samples, or one that measures neurons in other norms than this problem charges."""
        if not oracle.is_for(self.X):
            raise ValueError(f"{type(oracle).__name__} was made for other samples than the problem's; make it for X.")
        mine, asked = (self.hidden_norm, self.output_norm), (oracle.hidden_norm, oracle.output_norm)
        if mine != asked:
            raise ValueError(
                f"the problem has the norms {mine[0].name} and {mine[1].name}, {type(oracle).__name__} answers for "
                f"{asked[0].name} and {asked[1].name}. Use NormFaces or NormSearch with the problem's norms."
            )

    def with_beta(self, beta: float) -> Self:
        return replace(self, beta=beta)
