"""The weights of parallel three-layer ReLU networks: sub-networks side by side, whose outputs are added up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.modules import ParallelNetwork
from bidual.io.foreign.parameters import check_parameters
from bidual.io.foreign.weights import check_finite

_KINDS = (nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear)
_PLAIN = "Linear, ReLU, Linear(bias=False), ReLU, Linear"


@dataclass(frozen=True, eq=False)
class ParallelWeights:
    """x -> sum_k (((x, 1) first_k)_+ second_k)_+ third_k + bias in float64 (PR eq. 1 with three layers).

    Attributes:
        first, second, third: of all sub-networks, inputs before outputs.
        constant: whether a 1 is appended to x, for biases of the first layer.
        bias: of the outputs, None where there is none.
    """

    first: Float[Tensor, "k d m"]
    second: Float[Tensor, "k m u"]
    third: Float[Tensor, "k u c"]
    constant: bool = False
    bias: Float[Tensor, " c"] | None = None

    def __post_init__(self) -> None:
        check_finite(first=self.first, second=self.second, third=self.third, bias=self.bias)

    @property
    def layers(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.first, self.second, self.third

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Of a sub-network: inputs, with the constant, units of both hidden layers, outputs."""
        return *self.first.shape[1:], *self.third.shape[1:]

    def hidden(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "k n u"]:
        """The second hidden layer, for samples with their constant."""
        return ((X @ self.first).relu() @ self.second).relu()

    def forward(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Without the bias, for samples with their constant."""
        return (self.hidden(X) @ self.third).sum(0)

    def magnitude(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """How large the terms are that an output is the sum of, without the bias."""
        first, second, third = (layer.abs() for layer in self.layers)
        return replace(self, first=first, second=second, third=third).forward(X.abs())

    def with_bias(self, allowed: bool) -> Self:
        """With a bias that may be zero, or without one, which it must not have then."""
        if not allowed and self.bias is not None and bool(self.bias.any()):
            raise ValueError("the module has a bias that the network which was certified has not; give one like it.")
        given = self.third.new_zeros(self.third.shape[2]) if self.bias is None else self.bias
        return replace(self, bias=given if allowed else None)


def from_parallel(module: nn.Module) -> ParallelWeights | None:
    """The weights of a ``ParallelNetwork``, or of a module with one ModuleList of sub-networks; None for others.

    Sub-networks are ``Sequential(Linear, ReLU, Linear(bias=False), ReLU, Linear)`` of equal sizes, and the outputs of
    the module their sum, which is for the caller to check.
    """
    if isinstance(module, ParallelNetwork):
        return _decoded(module)
    parts = [(name, part) for name, part in module.named_children() if not isinstance(part, nn.Identity | nn.Dropout)]
    if len(parts) != 1 or not isinstance(parts[0][1], nn.ModuleList):
        return None
    chains = {f"{parts[0][0]}.{k}": list(part.children()) for k, part in enumerate(parts[0][1])}
    if not any(len(chain) == len(_KINDS) for chain in chains.values()):
        return None
    weights = _stacked(chains)
    check_parameters(module)
    return weights


def _decoded(module: ParallelNetwork) -> ParallelWeights:
    if len(module.layers) != 3:
        raise ValueError(
            f"a parallel network of {len(module.layers)} layers cannot be certified here, only one of three; its "
            "estimator certifies it among trees."
        )
    first, second, third = (_copy(layer) for layer in module.layers)
    return ParallelWeights(first, second, third, module.constant, _copy(module.bias))


def _stacked(chains: dict[str, list[nn.Module]]) -> ParallelWeights:
    for name, chain in chains.items():
        _check_chain(name, chain)
    first, second, third = zip(*(chain[::2] for chain in chains.values()), strict=True)
    for layers in (first, second, third):
        _check_alike(chains, layers)
    W, A, V = (torch.stack([_copy(layer.weight).T for layer in layers]) for layers in (first, second, third))
    constant, bias = first[0].bias is not None, None
    if constant:
        W = torch.cat([W, torch.stack([_copy(layer.bias) for layer in first])[:, None]], 1)
    if third[0].bias is not None:
        bias = torch.stack([_copy(layer.bias) for layer in third]).sum(0)
    return ParallelWeights(W, A, V, constant, bias)


def _check_chain(name: str, chain: list[nn.Module]) -> None:
    for place, (layer, kind) in enumerate(zip(chain, _KINDS, strict=False)):
        if not isinstance(layer, kind):
            _refuse(f"layer '{name}.{place}' is a {type(layer).__name__} where {kind.__name__} is expected")
    if len(chain) != len(_KINDS):
        _refuse(f"sub-network {name!r} has {len(chain)} layers")
    second: Any = chain[2]
    if second.bias is not None:
        _refuse(f"layer '{name}.2' is a Linear with a bias, which these networks do not have in the second layer")


def _check_alike(chains: dict[str, list[nn.Module]], layers: Sequence[Any]) -> None:
    for name, layer in zip(chains, layers, strict=True):
        same = layer.weight.shape == layers[0].weight.shape and (layer.bias is None) == (layers[0].bias is None)
        if not same:
            _refuse(f"sub-network {name!r} has a {layer}, and the first one a {layers[0]}")


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what}; parallel networks can be certified whose sub-networks are all alike, {_PLAIN}.")


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", torch.float64, copy=True)
