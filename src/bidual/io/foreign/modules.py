"""The weights of a torch module."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from bidual.architectures.modules import RebuildableModule
from bidual.io.foreign.graph import Affine, Other, Relu, Reshape, Step, two_layers
from bidual.io.foreign.normalisation import Scaling, check_modes, folded
from bidual.io.foreign.parameters import check_parameters
from bidual.io.foreign.weights import TwoLayerWeights
from bidual.runtime.json_text import one_line

_RELU_KIND = "relu_mlp"
_PLAIN = "a torch.nn.Sequential(Linear, ReLU, Linear)"
_SCALES = (0.01, 1.0, 100.0)  # what is no ReLU may look like one near zero, or far from it


def from_module(module: nn.Module) -> TwoLayerWeights:
    """The weights of a torch module that computes Linear, ReLU, Linear, with or without biases.

    Sequential modules may be nested, and may hold ``Identity``, ``Dropout`` (as in evaluation), ``Flatten``, and
    ``BatchNorm1d`` in evaluation mode, which the linear layer beside it takes in. Of any
    other module the two linear layers are taken in the order in which they were registered, and its ReLU may be a
    function call. The module is then run on a few random samples: if it computes anything else than these layers do, it
    is refused.
    """
    if isinstance(module, RebuildableModule) and module.kind != _RELU_KIND:
        raise ValueError(f"this is a network of kind {module.kind!r}, but only ReLU networks can be certified here.")
    check_modes(module)
    steps = folded(_steps(module))
    weights = two_layers(steps if isinstance(module, nn.Sequential) else _guess(steps))
    check_parameters(module)
    _check_forward(module, weights)
    return _without_unused_biases(weights) if isinstance(module, RebuildableModule) else weights


def linear_layers(module: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    """The hidden and the output layer of a module that :func:`from_module` reads."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if len(layers) != 2:
        raise ValueError(f"{type(module).__name__} uses one linear layer twice; give each layer weights of its own.")
    return layers[0], layers[1]


def _without_unused_biases(weights: TwoLayerWeights) -> TwoLayerWeights:
    """The networks of this package always have biases, zero where they were not allowed to be used."""
    biases = (weights.hidden_bias, weights.output_bias)
    hidden_bias, output_bias = (None if bias is None or not bias.any() else bias for bias in biases)
    return replace(weights, hidden_bias=hidden_bias, output_bias=output_bias)


def _guess(steps: list[Step]) -> list[Step]:
    """Two linear layers, with one ReLU anywhere or none, as they are most likely used; the run decides."""
    layers = [step for step in steps if not isinstance(step, Relu)]
    if [type(step) for step in layers] != [Affine, Affine] or len(steps) > 3:
        return steps
    return [layers[0], Relu(), layers[1]]


def _steps(module: nn.Module, name: str = "") -> Iterator[Step | Scaling]:
    if isinstance(module, nn.Linear):
        seen = not nn.parameter.is_lazy(module.weight)
        yield Affine(module.weight, module.bias) if seen else Other(f"{type(module).__name__} that has seen no data")
    elif isinstance(module, nn.ReLU):
        yield Relu()
    elif isinstance(module, nn.BatchNorm1d):
        yield Scaling.of(module, name)
    elif isinstance(module, nn.Flatten):
        yield Reshape("Flatten", keeps_rows=module.start_dim == 1)
    elif isinstance(module, (nn.Identity, nn.Dropout)):
        return
    elif next(module.children(), None) is not None:
        for part, child in module.named_children():
            yield from _steps(child, f"{name}.{part}" if name else part)
    elif not isinstance(module, nn.Sequential):
        yield Other(type(module).__name__)


def _check_forward(module: nn.Module, weights: TwoLayerWeights) -> None:
    """Run the module beside its weights, on samples of several sizes."""
    like = next(module.parameters())
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(16, weights.n_features, generator=generator, dtype=torch.float64)
    X = torch.cat([scale * normal for scale in _SCALES]).to(like.dtype)
    check_outputs(module, X, weights.forward(X), weights.magnitude(X))


def check_outputs(
    module: nn.Module,
    X: Tensor,
    expected: Tensor,
    size: Tensor,
    what: str = "a two-layer ReLU network",
    how: str = _PLAIN,
) -> None:
    """Refuse a module whose outputs are not the expected ones, up to the rounding of terms of this size."""
    like = next(module.parameters())
    found = _run(module, X.to(like.device, like.dtype), how)
    allowed = torch.finfo(like.dtype).eps ** 0.5 * size
    if found.numel() != expected.numel() or not bool(((found.view_as(expected) - expected).abs() <= allowed).all()):
        raise ValueError(
            f"{type(module).__name__} has the layers of {what}, but its forward computes something else; give {how}."
        )


def _run(module: nn.Module, X: Tensor, how: str) -> Tensor:
    try:
        with evaluating(module), torch.no_grad():
            return module(X).to("cpu", torch.float64).contiguous()
    except Exception as error:  # the module is the caller's code
        raise ValueError(
            f"{type(module).__name__} cannot be run on samples of shape {tuple(X.shape)} ({one_line(error)}); "
            f"give {how}."
        ) from error


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode; every part is put back into its own mode."""
    before = {part: part.training for part in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for part, training in before.items():
            part.training = training
