"""Training problems: the convex form over given blocks, and those over all neurons, of ReLU networks above all."""

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Gauge, Group, output_gauge
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L2, Norm
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.operators import LiftedOperator, NeuronOperator
from bidual.operators.patches import Patches
from bidual.polar import NeuronOracle, Neurons, oracle_for
from bidual.polar.base import Make
from bidual.types import Blocks, Matrix


@dataclass(frozen=True, eq=False)
class Problem:
    r"""min_Z P(Z) = F(A Z) + beta * Omega(Z), with the dual max_V D(V) = -F*(V) subject to Omega°(-A* V) <= beta.

    At an optimum V is the gradient of F at A Z.
    """

    operator: LiftedOperator
    datafit: Datafit
    gauge: Gauge
    beta: float

    def __post_init__(self) -> None:
        _check_beta(self.beta)
        if tuple(self.datafit.targets.shape) != self.operator.output_shape:
            raise ValueError(
                f"targets must have the operator's output shape {self.operator.output_shape}, "
                f"got {tuple(self.datafit.targets.shape)}."
            )

    def primal(self, Z: Blocks) -> float:
        """P(Z)."""
        return self.datafit.value(self.operator.forward(Z)) + self.beta * self.gauge.value(Z)

    def upper_bound(self, Z: Blocks, predictions: Matrix) -> float:
        """An upper bound of P(Z) in real arithmetic; ``predictions`` are the computed A Z.

        Prices count hidden weights as of length one, which they are up to as many roundings as they have entries.
        """
        fit = self.datafit.upper_bound(predictions, self.rounding_of_forward(Z))
        price = self.gauge.upper_bound(Z) * (1 + gamma(self.operator.depth.forward + 4) + self.operator.excess)
        return rounded_up(fit + self.beta * price) if fit or price else 0.0

    def residual(self, Z: Blocks) -> Matrix:
        """grad F(A Z), the natural dual candidate."""
        return self.datafit.grad(self.operator.forward(Z))

    def gradient(self, Z: Blocks) -> Blocks:
        """A* grad F(A Z)."""
        return self.operator.adjoint(self.residual(Z))

    @cached_property
    def beta_max(self) -> float:
        r"""Omega°(-A* V) at a subgradient V of F at 0: from this beta on, the zero network is optimal.

        For a smooth loss it is the smallest such beta; for a loss with kinks other subgradients may give a smaller one.
        """
        V = self.datafit.into_domain(self.residual(self.operator.zeros()))
        value = self.gauge.polar(-self.operator.adjoint(V)).upper
        return 0.0 if value <= self.likely_rounding_of_polar(V) else value

    @property
    def sensitivity(self) -> float:
        """A bound of the change of Omega°(A* V) per unit change of V in the Frobenius norm."""
        return self.operator.magnitude * self.gauge.per_frobenius(*self.operator.block_shape[1:]) * 1.001

    def rounding_of_polar(self, V: Matrix) -> float:
        """A bound of the error of the polar from rounding V and the products in A* V."""
        _, a, b = self.operator.block_shape
        underflow = TINY * V.numel() * self.gauge.per_frobenius(a, b) * math.sqrt(a * b)
        error = gamma(self.operator.depth.adjoint + 4, V.dtype) * length(V) * self.sensitivity
        return rounded_up(error + underflow)

    def likely_rounding_of_polar(self, V: Matrix) -> float:
        """An estimate of the error of the polar, whose roundings add up like a root (Higham & Mary 2019): to separate a
        slope from noise, not for proofs. In single precision the proved bound may exceed every slope."""
        steps = self.operator.depth.adjoint + 4
        return min(self.rounding_of_polar(V), 8 * gamma(math.sqrt(steps), V.dtype) * length(V) * self.sensitivity)

    def rounding_of_forward(self, Z: Blocks) -> float:
        """A bound of the error of A Z in the Frobenius norm: |A_p| |Z_p| adds up over blocks."""
        if not bool(Z.any()):
            return 0.0
        underflow = TINY * Z.numel() * math.sqrt(math.prod(self.operator.output_shape))
        error = gamma(self.operator.depth.forward + 4, Z.dtype) * Group().upper_bound(Z) * self.operator.magnitude
        return rounded_up(error + underflow)

    def with_beta(self, beta: float) -> Self:
        return replace(self, beta=beta)

    def to(self, dtype: torch.dtype) -> Self:
        """The same problem in another precision; self if nothing changes, or if that cannot hold targets or weights."""
        if self.operator.like.dtype == self.datafit.targets.dtype == dtype or not self.datafit.fits(dtype):
            return self
        return replace(self, operator=self.operator.to(dtype), datafit=self.datafit.to(dtype))

    def without_caches(self) -> Self:
        """The same problem, of whose operator only the samples take memory."""
        return replace(self, operator=copy(self.operator))

    def predictions(self, Z: Blocks) -> tuple[Tensor, Tensor]:
        """A Z and its intercept, in the units of the given targets."""
        P = self.operator.forward(Z)
        assert self.datafit.shift is not None
        return P, self.datafit.offset(P) + self.datafit.shift


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
        _check_beta(self.beta)
        self._check_samples()

    def _check_samples(self) -> None:
        targets = len(self.datafit.targets)
        if self.X.ndim != 2 or len(self.X) != targets:
            raise ValueError(f"X must have shape (n, d), one row per target ({targets}), got {tuple(self.X.shape)}.")

    @property
    def neuron_size(self) -> int:
        """How many numbers a neuron has."""
        return self.X.shape[1]

    @property
    def dual_at_zero(self) -> Matrix:
        """A point of dom F*, the gradient of F at the zero network where that is one."""
        return self.datafit.into_domain(self.datafit.grad(torch.zeros_like(self.datafit.targets)))

    @abstractmethod
    def restricted_to(self, neurons: Neurons) -> Problem:
        """The convex program over a dictionary of neurons, which are scaled to length one."""

    @abstractmethod
    def check_oracle(self, oracle: NeuronOracle) -> None:
        """Refuse an oracle for another problem."""

    def with_beta(self, beta: float) -> Self:
        return replace(self, beta=beta)

    def to(self, dtype: torch.dtype) -> Self:
        """The same problem in another precision; self if nothing changes."""
        if self.X.dtype == self.datafit.targets.dtype == dtype:
            return self
        return replace(self, X=self.X.to(dtype), datafit=self.datafit.to(dtype))


@dataclass(frozen=True, eq=False)
class ReluProblem(NeuronProblem):
    r"""min over all neurons (u_j, w_j) of F(sum_j (X u_j)_+ w_j^T) + beta sum_j |u_j| |w_j| (CP eq. 4, BM eq. 3).

    |u||w| is the least 1/2 (|u|^2 + |w|^2) among all rescalings of a neuron. The dual is max -F*(V) subject to
    |V^T (X u)_+| <= beta for all |u| <= 1 (CP eq. 11). A hidden bias is a constant column of X.

    Other norms may take the place of the Euclidean ones, |u|_C and |w|_R; the dual's constraint is then
    |V^T (X u)_+|_R* <= beta for all |u|_C <= 1 (BM Theorem B.1).

    With a ``readout`` L the rows of X are patches of images or pairs of tokens, and neurons contribute
    L[(X u_j)_+] V_j^T with |V_j|_F as price (BM eq. 23, 136). The dual's constraint is that of the rows, at L* V.
    """

    hidden_norm: Norm = L2
    output_norm: Norm = L2
    readout: Patches | None = None

    def _check_samples(self) -> None:
        if self.readout is None:
            super()._check_samples()
        else:
            self._check_readout(self.readout)

    def _check_readout(self, readout: Patches) -> None:
        if tuple(self.X.shape) != (readout.n_rows, readout.width):
            raise ValueError(f"X must be readout.rows(), {(readout.n_rows, readout.width)}, got {tuple(self.X.shape)}.")
        if readout.n_predictions != len(self.datafit.targets):
            raise ValueError(
                f"the readout makes {readout.n_predictions} rows of predictions, there are {len(self.datafit.targets)} "
                "of targets; they must be as many."
            )
        self.check_weight_decay("a readout")

    @classmethod
    def on(cls, patches: Patches, datafit: Datafit, beta: float) -> Self:
        """The problem of a ReLU network on patches."""
        return cls(patches.rows(), datafit, beta, readout=patches)

    def restricted_to(self, neurons: Neurons) -> Problem:
        units = self.hidden_norm.unit(neurons)
        longest = self.hidden_norm.times_l2(self.X.shape[1])
        operator = NeuronOperator(self.X, units, self.datafit.targets.shape[1], self.readout, longest)
        return Problem(operator, self.datafit, output_gauge(self.output_norm), self.beta)

    def check_weight_decay(self, what: str) -> None:
        """Refuse norms that are not Euclidean, for what is only true of weight decay."""
        if not self.hidden_norm == self.output_norm == L2:
            raise ValueError(
                f"{what} is for weight decay, norm l2 on both layers; got {self.hidden_norm.name} and "
                f"{self.output_norm.name}. Use column_generation."
            )

    def check_plain(self, what: str) -> None:
        """Refuse other norms and readouts, for what is only known of plain networks under weight decay."""
        self.check_weight_decay(what)
        if self.readout is not None:
            raise ValueError(f"{what} is for networks without a readout; use column_generation.")

    def check_oracle(self, oracle: NeuronOracle) -> None:
        """Refuse an oracle for other samples, or one that measures neurons in other norms than this problem charges."""
        if not oracle.is_for(self.X) or not self._has_readout(oracle.readout):
            raise ValueError(
                f"{type(oracle).__name__} was made for other samples than the problem's; make it by "
                "problem.oracle(Faces)."
            )
        mine, asked = (self.hidden_norm, self.output_norm), (oracle.hidden_norm, oracle.output_norm)
        if mine != asked:
            raise ValueError(
                f"the problem has the norms {mine[0].name} and {mine[1].name}, {type(oracle).__name__} answers for "
                f"{asked[0].name} and {asked[1].name}. Use NormFaces or NormSearch of "
                "bidual.papers.methods.norm_oracles, with the problem's norms."
            )

    def _has_readout(self, other: Patches | None) -> bool:
        if self.readout is None or other is None:
            return self.readout is other
        return self.readout is other or self.readout.is_same(other)

    def oracle(self, make: Make) -> NeuronOracle:
        """The oracle that ``make`` makes for the rows of X, such as Faces, for this problem's dual points."""
        euclidean = self.hidden_norm == self.output_norm == L2  # rows are merged in these norms only
        return oracle_for(self.X, self.readout, make) if euclidean or self.readout is not None else make(self.X)

    def to(self, dtype: torch.dtype) -> Self:
        moved = super().to(dtype)
        return moved if moved is self or self.readout is None else replace(moved, readout=self.readout.to(dtype))


def _check_beta(beta: float) -> None:
    if not (math.isfinite(beta) and beta > 0):
        raise ValueError(f"beta must be positive and finite, got {beta}. Try a fraction of beta_max.")
