"""A network that was found, put into a module of the user's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.modules import RebuildableModule, ReluConvNetwork, ReluNetwork
from bidual.estimators.certifying.head import head_layers
from bidual.io.foreign import TwoLayerWeights, from_module
from bidual.io.foreign.convolutions import ConvolutionalWeights, from_convolutional
from bidual.io.foreign.modules import linear_layers
from bidual.io.foreign.normalisation import check_unfolded

Hidden: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d


@dataclass(frozen=True, eq=False)
class Units:
    """Hidden units with their output weights: neurons with one readout, or filters with one per place after pooling."""

    hidden: Float[Tensor, "m ..."]
    output: Float[Tensor, "c m a"]
    hidden_bias: Float[Tensor, " m"] | None
    output_bias: Float[Tensor, " c"] | None

    @classmethod
    def of_neurons(cls, weights: TwoLayerWeights) -> Self:
        return cls(weights.hidden, weights.output[:, :, None], weights.hidden_bias, weights.output_bias)

    @classmethod
    def of_filters(cls, weights: ConvolutionalWeights) -> Self:
        output = weights.output.unflatten(1, (len(weights.filters), -1))
        return cls(weights.filters, output, weights.filter_bias, weights.output_bias)

    def __len__(self) -> int:
        return len(self.hidden)

    def used(self) -> Self:
        """Without units whose output weights are all zero; one of them stays where there is no other."""
        alive = (self.output != 0).any(2).any(0)
        alive[0] |= not bool(alive.any())
        hidden_bias = None if self.hidden_bias is None else self.hidden_bias[alive]
        return type(self)(self.hidden[alive], self.output[:, alive], hidden_bias, self.output_bias)


def load_network(found: RebuildableModule, model: nn.Module, head: Sequence[str] | None, widen: bool = False) -> None:
    """The weights of ``found`` in the two layers of ``model``, or in those that ``head`` names, in place.

    With ``widen`` layers that are too narrow are given new parameters.
    """
    units = _units_of(found).used()
    first, second = _conv_layers(model, found) if isinstance(found, ReluConvNetwork) else layers_of(model, head)
    _check_layers(units, first, second, widen)
    if len(units) > len(first.weight):
        _widen(first, second, len(units))
    put_weights(units, first, second)


def check_loadable(model: nn.Module, head: Sequence[str] | None) -> None:
    """Refuse before any work a module that no better network could be put into."""
    if isinstance(model, RebuildableModule) and not isinstance(model, ReluNetwork | ReluConvNetwork):
        raise ValueError(f"a {model.words} cannot be changed in place; use certify, and the better network it returns.")
    if head is None and from_convolutional(model) is not None:
        check_unfolded(model)
    else:
        layers_of(model, head)


def room_of(model: nn.Module, head: Sequence[str] | None) -> int:
    """How many units the hidden layer of a module has that can be loaded."""
    convolutional = None if head is not None else from_convolutional(model)
    return layers_of(model, head)[0].out_features if convolutional is None else len(convolutional.filters)


def _units_of(found: RebuildableModule) -> Units:
    if isinstance(found, ReluNetwork):
        return Units.of_neurons(from_module(found))
    weights = from_convolutional(found) if isinstance(found, ReluConvNetwork) else None
    if weights is None:
        raise ValueError(f"a {found.words} cannot be loaded into another module; use result.better, a torch module.")
    return Units.of_filters(weights)


def layers_of(model: nn.Module, head: Sequence[str] | None) -> tuple[nn.Linear, nn.Linear]:
    """The two layers of a two-layer ReLU network, or of the head of a larger one."""
    if head is not None:
        return head_layers(model, head)
    from_module(model)  # refuses what is no two-layer ReLU network
    check_unfolded(model)
    return linear_layers(model)


def _conv_layers(model: nn.Module, found: ReluConvNetwork) -> tuple[nn.Conv1d | nn.Conv2d, nn.Linear]:
    """The convolution and the linear layer of a convolutional network like the one that was found."""
    weights, other = from_convolutional(model), from_convolutional(found)
    if weights is None:
        raise ValueError(f"a {type(model).__name__} has no convolution; give the module that was certified.")
    if other is None or weights.convolution.geometry != other.convolution.geometry:
        raise ValueError("the module's convolution has another geometry; give the module that was certified.")
    check_unfolded(model)
    (first,) = (part for part in model.modules() if isinstance(part, nn.Conv1d | nn.Conv2d))
    (second,) = (part for part in model.modules() if isinstance(part, nn.Linear))
    return first, second


def _widen(first: Hidden, second: nn.Linear, width: int) -> None:
    """New parameters for so many units, of the same dtype, on the same device, and trained if the old ones were."""
    places = second.in_features // len(first.weight)
    for layer, name, shape in (
        (first, "weight", (width, *first.weight.shape[1:])),
        (first, "bias", (width,)),
        (second, "weight", (second.out_features, width * places)),
    ):
        old = getattr(layer, name)
        if old is not None:
            setattr(layer, name, nn.Parameter(old.new_zeros(shape), requires_grad=old.requires_grad))
    setattr(first, "out_features" if isinstance(first, nn.Linear) else "out_channels", width)
    second.in_features = width * places


def put_weights(units: Units, first: Hidden, second: nn.Linear) -> None:
    """Weights in two layers that follow each other; units to spare become zero."""
    m, c, width = len(units), len(units.output), len(first.weight)
    hidden, output = torch.zeros(first.weight.shape).double(), torch.zeros(c, width, units.output.shape[2]).double()
    hidden[:m], output[:, :m] = units.hidden, units.output
    hidden_bias = torch.zeros(width).double()
    hidden_bias[:m] = 0.0 if units.hidden_bias is None else units.hidden_bias
    output_bias = torch.zeros(c).double() if units.output_bias is None else units.output_bias
    flat = output.flatten(1)
    pairs = ((first.weight, hidden), (first.bias, hidden_bias), (second.weight, flat), (second.bias, output_bias))
    casts = [(old, new.to(old.dtype)) for old, new in pairs if old is not None]
    if not all(bool(torch.isfinite(new).all()) for _, new in casts):
        raise ValueError(
            f"the weights found are beyond the numbers of {first.weight.dtype}; use result.better instead."
        )
    with torch.no_grad():
        for old, new in casts:
            old.copy_(new)


def _check_layers(units: Units, first: Hidden, second: nn.Linear, widen: bool) -> None:
    instead = "use result.better, a module of its own"
    if any(not isinstance(layer.weight, nn.Parameter) for layer in (first, second)):
        raise ValueError(f"the module's weights are parametrised, so that they cannot be set; {instead}.")
    width, what = len(first.weight), "neurons" if isinstance(first, nn.Linear) else "filters"
    if len(units) > width and not widen:
        raise ValueError(f"the network found has {len(units)} {what} and your module has room for {width}; {instead}.")
    _check_sizes(units, first, second)
    for name, bias, layer in (("hidden", units.hidden_bias, first), ("output", units.output_bias, second)):
        if layer.bias is None and _has(bias):
            raise ValueError(f"the network found has a bias in its {name} layer and your module has none; {instead}.")


def _check_sizes(units: Units, first: Hidden, second: nn.Linear) -> None:
    places, of_one = units.output.shape[2], _features(units.hidden)
    sizes, room = (of_one, len(units.output)), (_features(first.weight), second.out_features)
    if sizes != room or second.in_features != places * len(first.weight):
        raise ValueError(
            f"the network found has {sizes[0]} features and {sizes[1]} outputs, your module {room[0]} and {room[1]}; "
            "give the module that was certified."
        )


def _features(weight: Tensor) -> str:
    """The numbers that a unit sees, such as 8 or 1 x 3 x 3."""
    return " x ".join(map(str, weight.shape[1:]))


def _has(bias: Tensor | None) -> bool:
    return bias is not None and bool(bias.any())
