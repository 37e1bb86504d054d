"""The training problem of parallel ReLU networks over all sub-networks, under the path norm."""

import math
from dataclasses import dataclass

from bidual.gauges import Group
from bidual.numerics.norms import L2
from bidual.operators.parallel import ParallelOperator, Widths, as_widths, sub_network_size
from bidual.polar import NeuronOracle, Neurons
from bidual.problems.problem import NeuronProblem, Problem


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
