"""Two-layer heads of larger networks: the part before them is run once, and the head is judged on its features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.estimators.certifying.frozen import Frozen, layer_of
from bidual.estimators.certifying.two_layer import GivenTwoLayer
from bidual.io.foreign import TwoLayerWeights
from bidual.io.foreign.parameters import check_parameters, check_unshared


@dataclass(frozen=True, eq=False)
class GivenHead(GivenTwoLayer):
    """The last two linear layers of a module; its samples are those of the module, its rivals other heads.

    Attributes:
        model: the whole module.
        names: of the two layers in it.
    """

    model: nn.Module
    names: tuple[str, str]

    @classmethod
    def of(cls, model: Any, head: Sequence[str]) -> Self:
        """By the names of the two layers, as ``model.named_modules()`` has them."""
        layers = head_layers(model, head)
        for layer in layers:
            check_parameters(layer)
            check_unshared(model, layer.parameters())
        return cls(_weights(*layers), model, (head[0], head[1]))

    @property
    def limits(self) -> str:
        return f" on the same features{super().limits}"

    @property
    def head(self) -> tuple[str, str]:
        return self.names

    def rival(self, module: nn.Module) -> Self:
        """The head of another module; what is before it must compute the same features."""
        return replace(self.with_weights(_weights(*head_layers(module, self.names))), model=module)

    def samples(self, X: ArrayLike) -> Float[Tensor, "n d"]:
        """The features that the first layer sees at X, with a column of ones where it has a bias."""
        frozen = Frozen(self.model, self.names[0])
        features, outputs = frozen.features(X)
        if features.ndim != 2:
            shape = tuple(features.shape[1:])
            raise ValueError(
                f"{self.names[0]!r} sees an array of shape {shape} for every sample, and a head can be certified on "
                "one row per sample; pool or flatten before it."
            )
        self._check(features, outputs)
        return super().samples(features)

    def _check(self, features: Float[Tensor, "n d"], outputs: Tensor) -> None:
        """That the module computes nothing else after the features than the two layers with a ReLU between."""
        expected, size = self.weights.forward(features), self.weights.magnitude(features)
        precision = next(self.model.parameters()).dtype
        allowed = torch.finfo(precision).eps ** 0.5 * size
        if outputs.numel() != expected.numel() or not bool(
            ((outputs.view_as(expected) - expected).abs() <= allowed).all()
        ):
            first, second = self.names
            raise ValueError(
                f"the outputs of {type(self.model).__name__} are not those of {first!r}, a ReLU and {second!r} on what "
                f"{first!r} sees; a head is the last two linear layers, with nothing but a ReLU and Dropout between."
            )


def head_layers(model: Any, head: Sequence[str]) -> tuple[nn.Linear, nn.Linear]:
    """The two linear layers of these names, one of which takes what the other one gives."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"head= names layers of a torch module, got a {type(model).__name__}; leave it out.")
    names = tuple(head) if isinstance(head, (tuple, list)) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"head must be the names of two linear layers, such as ('fc1', 'fc2'), got {head!r}.")
    first, second = (_linear(model, name) for name in names)
    if first.out_features != second.in_features:
        raise ValueError(
            f"the layers of head={names} do not follow each other: {names[0]!r} has {first.out_features} outputs, "
            f"{names[1]!r} takes {second.in_features}; name the last two linear layers."
        )
    return first, second


def _weights(first: nn.Linear, second: nn.Linear) -> TwoLayerWeights:
    return TwoLayerWeights.of(first.weight, second.weight, first.bias, second.bias)


def _linear(model: nn.Module, name: str) -> nn.Linear:
    layer = layer_of(model, name)
    if not isinstance(layer, nn.Linear):
        raise ValueError(f"a head has linear layers, but {name!r} is a {type(layer).__name__}; name two Linear layers.")
    return layer
