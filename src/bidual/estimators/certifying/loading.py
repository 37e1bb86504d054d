"""A network that was found, put into a module that somebody else wrote."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bidual.architectures.modules import RebuildableModule, ReluNetwork
from bidual.estimators.certifying.head import head_layers
from bidual.io.foreign import TwoLayerWeights, from_module
from bidual.io.foreign.modules import linear_layers
from bidual.io.foreign.normalisation import check_unfolded


def load_network(found: RebuildableModule, model: nn.Module, head: Sequence[str] | None, widen: bool = False) -> None:
    """The weights of ``found`` in the two linear layers of ``model``, or in those that ``head`` names, in place.

    With ``widen`` layers that are too narrow are given new parameters.
    """
    if not isinstance(found, ReluNetwork):
        raise ValueError(f"a {found.words} cannot be loaded into another module; use result.better, a torch module.")
    weights, (first, second) = _used(from_module(found)), layers_of(model, head)
    _check_layers(weights, first, second, widen)
    if weights.n_neurons > first.out_features:
        _widen(first, second, weights.n_neurons)
    put_weights(weights, first, second)


def _widen(first: nn.Linear, second: nn.Linear, width: int) -> None:
    """New parameters for so many neurons, of the same dtype, on the same device, and trained if the old ones were."""
    for layer, name, shape in (
        (first, "weight", (width, first.in_features)),
        (first, "bias", (width,)),
        (second, "weight", (second.out_features, width)),
    ):
        old = getattr(layer, name)
        if old is not None:
            setattr(layer, name, nn.Parameter(old.new_zeros(shape), requires_grad=old.requires_grad))
    first.out_features = second.in_features = width


def layers_of(model: nn.Module, head: Sequence[str] | None) -> tuple[nn.Linear, nn.Linear]:
    """The two layers of a two-layer ReLU network, or of the head of a larger one."""
    if head is not None:
        return head_layers(model, head)
    from_module(model)  # refuses what is no two-layer ReLU network
    check_unfolded(model)
    return linear_layers(model)


def put_weights(weights: TwoLayerWeights, first: nn.Linear, second: nn.Linear) -> None:
    """Weights in two layers that follow each other; neurons to spare become zero."""
    m = weights.n_neurons
    hidden, output = torch.zeros(first.weight.shape).double(), torch.zeros(second.weight.shape).double()
    hidden[:m], output[:, :m] = weights.hidden, weights.output
    hidden_bias = torch.zeros(len(hidden)).double()
    hidden_bias[:m] = 0.0 if weights.hidden_bias is None else weights.hidden_bias
    output_bias = torch.zeros(len(output)).double() if weights.output_bias is None else weights.output_bias
    pairs = ((first.weight, hidden), (first.bias, hidden_bias), (second.weight, output), (second.bias, output_bias))
    casts = [(old, new.to(old.dtype)) for old, new in pairs if old is not None]
    if not all(bool(torch.isfinite(new).all()) for _, new in casts):
        raise ValueError(
            f"the weights found are beyond the numbers of {first.weight.dtype}; use result.better instead."
        )
    with torch.no_grad():
        for old, new in casts:
            old.copy_(new)


def _used(weights: TwoLayerWeights) -> TwoLayerWeights:
    """Without neurons whose output weights are all zero; one of them stays where there is no other."""
    alive = (weights.output != 0).any(0)
    alive[0] |= not bool(alive.any())
    hidden_bias = None if weights.hidden_bias is None else weights.hidden_bias[alive]
    return TwoLayerWeights(weights.hidden[alive], weights.output[:, alive], hidden_bias, weights.output_bias)


def _check_layers(weights: TwoLayerWeights, first: nn.Linear, second: nn.Linear, widen: bool) -> None:
    instead = "use result.better, a module of its own"
    if any(parametrize.is_parametrized(layer) for layer in (first, second)):
        raise ValueError(f"the module's weights are parametrised, so that they cannot be set; {instead}.")
    if weights.n_neurons > first.out_features and not widen:
        raise ValueError(
            f"the network found has {weights.n_neurons} neurons and your module has room for {first.out_features}; "
            f"{instead}."
        )
    sizes, room = (weights.n_features, weights.n_outputs), (first.in_features, second.out_features)
    if sizes != room:
        raise ValueError(
            f"the network found has {sizes[0]} features and {sizes[1]} outputs, your module {room[0]} and {room[1]}; "
            "give the module that was certified."
        )
    for name, bias, layer in (("hidden", weights.hidden_bias, first), ("output", weights.output_bias, second)):
        if layer.bias is None and _has(bias):
            raise ValueError(f"the network found has a bias in its {name} layer and your module has none; {instead}.")


def _has(bias: Tensor | None) -> bool:
    return bias is not None and bool(bias.any())
