"""The training problems of ReLU networks over all neurons: two layers, and parallel networks under the path norm."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch

from bidual.gauges import Group, output_gauge
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L2, Norm
from bidual.operators import NeuronOperator
from bidual.operators.parallel import ParallelOperator, Widths, as_widths, sub_network_size
from bidual.operators.patches import Patches
from bidual.polar import NeuronOracle, Neurons, oracle_for
from bidual.polar.base import Make
from bidual.problems.problem import NeuronProblem, Problem


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
        return oracle_for(self.X, self.readout, make)

    def to(self, dtype: torch.dtype) -> Self:
        moved = super().to(dtype)
        return moved if moved is self or self.readout is None else replace(moved, readout=self.readout.to(dtype))


@dataclass(frozen=True, eq=False)
class ParallelProblem(NeuronProblem):
    r"""min over all sub-networks of F(sum_k ((X W_1k)_+ w_2k)_+ w_3k^T) + beta * path norm (PR eq. 4, m_2 = 1).

    Scaled so that second-layer weights are signs, a sub-network costs |W_1k|_F |w_3k|. More units m_2 in the second
    layer only change beta to beta / sqrt(m_2): the best of them are copies of one. A hidden bias is a constant column
    of X.

    The dual is max -F*(V) subject to |V^T ((X W_1)_+ w_2)_+| <= beta for all |W_1|_F <= 1 and signs w_2 (PR eq. 6).

    ``widths`` is m_1, or (m_1, ..., m_(L-2)) for L layers (PR Corollary 1). Sub-networks of more than three layers are
    trees: no unit is shared by two units above it. A network whose units are shared unfolds to a tree of equal
    predictions and path norm, so its optimum is no lower; a tree is a network of widths m_1 m_2 ..., m_2 ..., ....
    """

    widths: Widths

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "widths", as_widths(self.widths))

    @property
    def units(self) -> int:
        """m_1 m_2 ..., the first-layer units of a sub-network."""
        return math.prod(as_widths(self.widths))

    @property
    def neuron_size(self) -> int:
        return sub_network_size(as_widths(self.widths), self.X.shape[1])

    def restricted_to(self, neurons: Neurons) -> Problem:
        operator = ParallelOperator(self.X, L2.unit(neurons), self.datafit.targets.shape[1], self.widths)
        return Problem(operator, self.datafit, Group(), self.beta)

    def check_oracle(self, oracle: NeuronOracle) -> None:
        if not oracle.is_for(self.X) or getattr(oracle, "widths", None) != self.widths:
            raise ValueError(
                f"{type(oracle).__name__} was made for other samples or widths than the problem's; make it for X "
                f"and widths {self.widths}."
            )
