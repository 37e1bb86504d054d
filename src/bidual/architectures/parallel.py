"""Parallel networks of three layers (N9) and more (N10): a dictionary of sub-networks, each with its output weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture, check_units
from bidual.architectures.modules import ParallelNetwork, RebuildableModule
from bidual.gauges import Gauge, Group
from bidual.operators import LiftedOperator
from bidual.operators.parallel import ParallelOperator, Widths, as_widths
from bidual.patterns import with_constant

Stack = Float[Tensor, "k _ _"]  # rows and columns differ from layer to layer


@dataclass(frozen=True, eq=False)
class ParallelMLP(Architecture):
    r"""f(X) = sum_k ((X W_1k)_+ w_2k)_+ z_k^T over sub-networks with |W_1k|_F = 1 and signs w_2k (PR eq. 7, 9).

    Priced sum_k |z_k|, the path norm (PR Lemma 1). ``neurons`` (K, s) hold the columns of W_1k whose sign is +1, then
    those whose sign is -1, m_1 places each and at most m_1 taken in all; for more layers see :class:`ParallelOperator`.
    With ``bias`` the samples get a constant 1.
    """

    neurons: Float[Tensor, "k s"]
    widths: Widths
    bias: bool = False
    name = "parallel"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", as_widths(self.widths))
        check_units(self.neurons)
        if len(self.neurons):
            _tree(self.neurons, as_widths(self.widths))

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return ParallelOperator(with_constant(X) if self.bias else X, self.neurons, n_outputs, self.widths)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        """PR Proposition 1: the columns of W_1, their signs as W_2, ..., and z as output weights."""
        used = Z.flatten(1).any(1)
        neurons, weights = self.neurons.to(Z)[used], Z[used]
        if not len(neurons):  # the zero network keeps one sub-network, whose output is zero
            neurons, weights = neurons.new_zeros(1, neurons.shape[1]), Z.new_zeros(1, *Z.shape[1:])
        columns, signs = _tree(neurons, as_widths(self.widths))
        layers = [columns.mT, *(_block_diagonal(sign) for sign in signs), weights]
        widths = [layer.shape[2] for layer in layers[:-1]]
        module = ParallelNetwork(columns.shape[2] - self.bias, widths, Z.shape[2], len(columns), int(self.bias))
        with torch.no_grad():
            for layer, weight in zip(module.layers, layers, strict=True):
                layer.copy_(weight)
            module.bias.copy_(offset)
        return module

    def regulariser(self, module: nn.Module) -> float:
        """The path norm, sum_k sqrt( sum over paths of |w_1k|^2 w_2k^2 ... w_Lk^2 ) (PR section 2.2)."""
        if not isinstance(module, ParallelNetwork):
            raise TypeError(f"expected a ParallelNetwork, got {type(module).__name__}.")
        return float(squared_paths([layer.detach() for layer in module.layers]).sum(1).sqrt().sum())

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        neurons = torch.randn(6, 2, 2, 2, 3, 5, generator=generator, dtype=torch.float64)
        neurons[:, 1, 1], neurons[:, 0, 1] = 0.0, 0.0  # two units above, one of each sign
        neurons[..., 0, 2, :], neurons[..., 1, 1:, :] = 0.0, 0.0  # each over two units of sign +1 and one of sign -1
        neurons[0, :, :, 1] = 0.0
        flat = neurons.flatten(1)
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(flat / torch.linalg.vector_norm(flat, dim=1, keepdim=True), (3, 2), bias=True), X


def _tree(neurons: Float[Tensor, "k s"], widths: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
    """The first-layer units (K, m_1 m_2 ..., d) of sub-networks without the places that are not taken, and for every
    layer above, from the input on, the signs (K, units above, m_l) with which they enter it."""
    units, above = neurons, 1
    signs: list[Tensor] = []
    for m in reversed(widths):
        flat = units.reshape(len(neurons), above, 2 * m, -1)
        taken = flat.any(3)
        if bool((taken.sum(2) > m).any()):
            raise ValueError(f"a unit of a sub-network has more than its {m} inputs; its widths are {widths}.")
        first = torch.argsort(taken.to(torch.int8), dim=2, descending=True, stable=True)[:, :, :m]
        signs.append(torch.where(first < m, 1.0, -1.0).to(units))
        units = flat.gather(2, first[..., None].expand(-1, -1, -1, flat.shape[3]))
        above *= m
    return units.reshape(len(neurons), above, -1), signs[::-1]


def _block_diagonal(sign: Float[Tensor, "k a m"]) -> Float[Tensor, "k am a"]:
    """Layer weights (units below, units above), each unit below being the input of one unit above."""
    k, above, m = sign.shape
    layer = sign.new_zeros(k, above, m, above)
    index = torch.arange(above, device=sign.device)
    layer[:, index, :, index] = sign.transpose(0, 1)
    return layer.flatten(1, 2)


def squared_paths(layers: Sequence[Stack]) -> Float[Tensor, "k units"]:
    """The sum of the squared products of weights over all paths to each unit of the last layer."""
    squares = layers[0].square().sum(1)
    for layer in layers[1:]:
        squares = (squares[:, None] @ layer.square())[:, 0]
    return squares
