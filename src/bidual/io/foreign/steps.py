"""A network as the steps a sample takes through it, and the test that they are those of two layers with a ReLU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bidual.io.foreign.weights import TwoLayerWeights

_MOST_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Affine:
    """x -> weight x + bias."""

    weight: Tensor
    bias: Tensor | None = None

    def __str__(self) -> str:
        return f"Linear({', '.join(str(size) for size in reversed(self.weight.shape))})"


@dataclass(frozen=True, eq=False)
class Shift:
    """x -> x + amount."""

    amount: Tensor

    def __str__(self) -> str:
        return "Add"


@dataclass(frozen=True)
class Relu:
    """x -> max(x, 0)."""

    def __str__(self) -> str:
        return "ReLU"


@dataclass(frozen=True)
class Reshape:
    """The same numbers in the same order; ``keeps_rows`` says that samples stay rows."""

    name: str
    keeps_rows: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Other:
    """A step that no two-layer ReLU network has."""

    name: str

    def __str__(self) -> str:
        return self.name


Step = Affine | Shift | Relu | Reshape | Other


def two_layers(steps: Sequence[Step], n_features: int | None = None) -> TwoLayerWeights:
    """The weights, if the steps are Linear, ReLU, Linear.

    Args:
        steps: from the samples to the outputs.
        n_features: how many numbers a sample has, where that is known. A reshaping is harmless only if the first layer
            takes them all at once, or if it comes last and there is one output.
    """
    merged = _with_biases(steps)
    layers = [step for step in merged if not isinstance(step, Reshape)]
    if not _is_two_layers(layers):
        raise ValueError(f"this is not a two-layer ReLU network: expected Linear, ReLU, Linear, found {_show(steps)}.")
    first, _, second = layers
    assert isinstance(first, Affine)
    assert isinstance(second, Affine)
    _check_input(first, n_features)
    _check_end(merged[-1], second)
    return TwoLayerWeights.of(first.weight, second.weight, first.bias, second.bias)


def _is_two_layers(layers: Sequence[Step]) -> bool:
    kinds = [type(step) for step in layers]
    return kinds == [Affine, Relu, Affine]


def _with_biases(steps: Sequence[Step]) -> list[Step]:
    """A shift right after a linear layer is its bias."""
    merged: list[Step] = []
    for step in steps:
        last = merged[-1] if merged else None
        if isinstance(step, Shift) and isinstance(last, Affine):
            merged[-1] = Affine(last.weight, _sum(last.bias, as_bias(step.amount, len(last.weight))))
        else:
            merged.append(step)
    return merged


def as_bias(amount: Tensor, length: int) -> Tensor:
    """A shift that is the same for all samples, as a vector; one number is repeated."""
    if amount.numel() == 1:
        return amount.reshape(1).expand(length)
    if amount.ndim == 0 or amount.numel() != amount.shape[-1] or amount.numel() != length:
        raise ValueError(f"a layer of {length} neurons has a bias of shape {tuple(amount.shape)}; use one per neuron.")
    return amount.reshape(length)


def _sum(bias: Tensor | None, more: Tensor) -> Tensor:
    return more if bias is None else bias + more


def _check_input(first: Affine, n_features: int | None) -> None:
    taken = first.weight.shape[-1]
    if n_features is not None and n_features != taken:
        raise ValueError(
            f"the network's samples have {n_features} numbers each, but its first layer takes {taken} at a time; "
            "only networks whose first layer takes a whole sample can be read."
        )


def _check_end(last: Step, second: Affine) -> None:
    if isinstance(last, Reshape) and not last.keeps_rows and len(second.weight) != 1:
        raise ValueError(
            f"the network ends with {last.name}, which mixes its {len(second.weight)} outputs with the samples; "
            "leave that step out."
        )


def _show(steps: Sequence[Step]) -> str:
    names = [str(step) for step in steps[:_MOST_SHOWN]] + ["..."] * (len(steps) > _MOST_SHOWN)
    return ", ".join(names) or "no layer at all"
