"""Three-layer parallel networks (N9): a dictionary of sub-networks, each with its output weights."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.pricing import check_units
from bidual.gauges import Gauge, Group
from bidual.networks import ParallelNetwork, RebuildableModule
from bidual.operators import LiftedOperator
from bidual.operators.parallel import ParallelOperator
from bidual.parallel.path_norm import path_norm
from bidual.patterns import with_constant


@dataclass(frozen=True, eq=False)
class ParallelMLP(Architecture):
    r"""f(X) = sum_k ((X W_1k)_+ w_2k)_+ z_k^T over sub-networks with |W_1k|_F = 1 and signs w_2k (PR eq. 7, 9).

    Priced sum_k |z_k|, the path norm (PR Lemma 1). ``neurons`` (K, 2 m_1 d) hold the columns of W_1k whose sign is +1,
    then those whose sign is -1, m_1 places each and at most m_1 taken in all. With ``bias`` d counts a constant 1.
    """

    neurons: Float[Tensor, "k s"]
    width: int
    bias: bool = False
    name = "parallel"

    def __post_init__(self) -> None:
        check_units(self.neurons)
        if bool((self._taken.sum((1, 2)) > self.width).any()):
            raise ValueError(f"a sub-network has more than width={self.width} units in its first layer.")

    @property
    def _units(self) -> Float[Tensor, "k 2 m d"]:
        return self.neurons.reshape(len(self.neurons), 2, self.width, -1)

    @property
    def _taken(self) -> Tensor:
        return self._units.any(3)

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return ParallelOperator(with_constant(X) if self.bias else X, self.neurons, n_outputs, self.width)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        """PR Proposition 1: the columns of W_1, their signs as w_2, and z as output weights."""
        used = Z.flatten(1).any(1)
        used[0] |= not bool(used.any())  # the zero network keeps one sub-network, which does nothing
        units, weights = self._units.to(Z)[used], Z[used]
        taken = self._taken[used].flatten(1).to(torch.int8)
        first = torch.argsort(taken, dim=1, descending=True, stable=True)[:, : self.width]
        module = ParallelNetwork(
            units.shape[3] - self.bias, [self.width, 1], Z.shape[2], len(units), constant=int(self.bias)
        )
        sign = torch.tensor([1.0, -1.0]).to(Z).repeat_interleave(self.width)[first]
        columns = units.flatten(1, 2).gather(1, first[:, :, None].expand(-1, -1, units.shape[3]))
        with torch.no_grad():
            for layer, weight in zip(module.layers, (columns.mT, sign[:, :, None], weights), strict=True):
                layer.copy_(weight)
            module.bias.copy_(offset)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, ParallelNetwork):
            raise TypeError(f"expected a ParallelNetwork, got {type(module).__name__}.")
        return float(path_norm([layer.detach() for layer in module.layers]))

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        neurons = torch.randn(6, 2, 3, 5, generator=generator, dtype=torch.float64)
        neurons[:, 0, 2], neurons[:, 1, 1:] = 0.0, 0.0  # two units of sign +1, one of sign -1
        neurons[0, 1] = 0.0
        flat = neurons.flatten(1)
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(flat / torch.linalg.vector_norm(flat, dim=1, keepdim=True), 3, bias=True), X
