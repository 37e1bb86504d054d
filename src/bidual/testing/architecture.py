"""What every network family promises."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from bidual.architectures import Architecture
from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.gauges import GAUGES
from bidual.operators import LiftedOperator
from bidual.testing.tools import normal, require, require_close, require_refused


def check_architecture(cls: type[Architecture], generator: torch.Generator) -> None:
    """Decoding keeps predictions and price, for every penalty on offer, and the network can be stored."""
    example, X = cls.example(generator)
    offered = list(_penalties(example))
    require(bool(offered), f"{cls.__name__}: example offers a penalty")
    for architecture in offered:
        for c in (1, 3):
            operator = architecture.lift(X, c)
            for density in (1.0, 0.5, 0.0):
                keep = torch.rand(len(operator.zeros()), 1, 1, generator=generator) < density
                Z = normal(operator.block_shape, generator) * keep
                _check_decoding(architecture, operator, X, Z, normal((c,), generator))
    require_refused(f"{cls.__name__}: lift to no outputs", lambda: example.lift(X, 0))


def _check_decoding(architecture: Architecture, operator: LiftedOperator, X: Tensor, Z: Tensor, offset: Tensor) -> None:
    name, module = type(architecture).__name__, architecture.decode(Z, offset)
    with torch.no_grad():
        predictions = module(X)
    require_close(predictions, operator.forward(Z) + offset, f"{name}: decode keeps predictions", 1e-10)
    price, value = architecture.regulariser(module), architecture.gauge().value(Z)
    require_close(price, value, f"{name}: decode keeps the price", 1e-10)
    _check_storage(module, X, predictions)


def _check_storage(module: nn.Module, X: Tensor, predictions: Tensor) -> None:
    name = type(module).__name__
    if not isinstance(module, RebuildableModule):
        raise AssertionError(f"broken: {name}: a decoded network is a RebuildableModule.")
    rebuilt = NETWORKS[module.kind].rebuild(module.sizes, module.state_dict())
    require(type(rebuilt) is type(module), f"{name}: NETWORKS knows its kind")
    with torch.no_grad():
        require_close(rebuilt(X), predictions, f"{name}: rebuild gives the same network", 1e-14)


def _penalties(architecture: Architecture) -> Iterator[Architecture]:
    if not hasattr(architecture, "penalty"):
        yield architecture
        return
    for penalty in GAUGES:
        offered = replace(architecture, penalty=penalty)  # type: ignore[type-var]
        try:
            offered.gauge()
        except ValueError:
            continue
        yield offered


# ------------------------------------------------------------------------------------------------------------- tools
