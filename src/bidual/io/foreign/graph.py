"""A network as the steps that a sample takes, or as a graph in the words of ONNX: is it two layers with a ReLU?"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch import Tensor

from bidual.io.foreign.weights import TwoLayerWeights

_MOST_SHOWN = 8
_MOST_NODES = 500  # chains of steps grow with them
_RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, eq=False)
class Affine:
    """x -> weight x + bias."""

    weight: Tensor
    bias: Tensor | None = None

    def __str__(self) -> str:
        return f"Linear({', '.join(str(size) for size in reversed(self.weight.shape))})"


@dataclass(frozen=True)
class Relu:
    """x -> max(x, 0)."""

    def __str__(self) -> str:
        return "ReLU"


@dataclass(frozen=True)
class Other:
    """A step that no two-layer ReLU network has."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reshape:
    """The same numbers in the same order; ``keeps_rows`` says that samples stay rows."""

    name: str
    keeps_rows: bool = False

    def __str__(self) -> str:
        return self.name


Step = Affine | Relu | Reshape | Other
Chain = tuple[Step, ...]
Lazy = Callable[[], Tensor]  # float64; read when it is needed, so that a large file of another kind is refused at once


def two_layers(steps: Sequence[Step], n_features: int | None = None) -> TwoLayerWeights:
    """The weights, if the steps are Linear, ReLU, Linear.

    Args:
        steps: from the samples to the outputs.
        n_features: how many numbers a sample has, where that is known. A reshaping is harmless only if the first layer
            takes them all at once, or if it comes last and there is one output.
    """
    layers = [step for step in steps if not isinstance(step, Reshape)]
    match layers:
        case [Affine() as first, Relu(), Affine() as second]:
            _check_reshaping(first, second, steps[-1], n_features)
            return TwoLayerWeights.of(first.weight, second.weight, first.bias, second.bias)
    names = [str(step) for step in steps[:_MOST_SHOWN]] + ["..."] * (len(steps) > _MOST_SHOWN)
    shown = ", ".join(names) or "no layer at all"
    raise ValueError(f"this is not a two-layer ReLU network: expected Linear, ReLU, Linear, found {shown}.")


def _as_bias(amount: Tensor, length: int) -> Tensor:
    """A shift that is the same for all samples, as a vector; one number is repeated."""
    if amount.numel() == 1:
        return amount.reshape(1).expand(length)
    if amount.ndim == 0 or amount.numel() != amount.shape[-1] or amount.numel() != length:
        raise ValueError(f"a layer of {length} neurons has a bias of shape {tuple(amount.shape)}; use one per neuron.")
    return amount.reshape(length)


def _check_reshaping(first: Affine, second: Affine, last: Step, n_features: int | None) -> None:
    taken = first.weight.shape[-1]
    if n_features is not None and n_features != taken:
        raise ValueError(
            f"the network's samples have {n_features} numbers each, but its first layer takes {taken} at a time; "
            "only networks whose first layer takes a whole sample can be read."
        )

    if isinstance(last, Reshape) and not last.keeps_rows and len(second.weight) != 1:
        raise ValueError(
            f"the network ends with {last.name}, which mixes its {len(second.weight)} outputs with the samples; "
            "leave that step out."
        )


@dataclass(frozen=True)
class Node:
    """One operation; an input that is left out has the name ""."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes_nothing(self) -> bool:
        return self.op == "Identity" or (self.op == "Cast" and self.settings["floating"])


@dataclass(frozen=True)
class Graph:
    """A computation graph.

    Attributes:
        nodes: the operations in the order in which they run.
        constants: how to read each stored tensor.
        input, output: the names of the samples and of the network's outputs.
        sizes: of the input, the samples first; 0 where the graph does not say it.
        has_head: whether the network proper ends with the last linear layer after a ReLU, before ``output``.
    """

    nodes: Sequence[Node]
    constants: Mapping[str, Lazy]
    input: str
    output: str
    sizes: Sequence[int] = ()
    has_head: bool = False

    def weights(self) -> TwoLayerWeights:
        chains = _chains(self)
        hidden = [chain for chain in chains.values() if any(isinstance(step, Relu) for step in chain)]
        ends = [chain for chain in hidden if self.has_head and isinstance(chain[-1], Affine)]
        chain = ends[-1] if ends else chains.get(self.output, (Other("an output that does not depend on the input"),))
        known = len(self.sizes) > 1 and all(self.sizes[1:])
        return two_layers(chain, math.prod(self.sizes[1:]) if known else None)


def _chains(graph: Graph) -> dict[str, Chain]:
    """The steps that lead from the input to every value that depends on it, in the order of the nodes."""
    if len(graph.nodes) > _MOST_NODES:
        raise ValueError(
            f"its graph has {len(graph.nodes)} operations, and a two-layer ReLU network has a few; give that alone."
        )
    constants: dict[str, Lazy] = {name: cache(read) for name, read in graph.constants.items()}
    chains: dict[str, Chain] = {graph.input: ()}
    for node in graph.nodes:
        inputs = [name for name in node.inputs if name]
        if all(name in constants for name in inputs):
            constants.update(_folded(node, constants))
        else:
            chains.update(dict.fromkeys(node.outputs, _after(node, inputs, constants, chains)))
    return chains


def _folded(node: Node, constants: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """What a node makes of constants, for the few operations that exporters leave on weights."""
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return {}
    read = constants[node.inputs[0]]
    if node.changes_nothing:
        return {node.outputs[0]: read}
    if node.op == "Transpose" and node.settings["swaps"]:
        return {node.outputs[0]: lambda: read().T}
    return {}


def _after(node: Node, inputs: list[str], constants: Mapping[str, Lazy], chains: Mapping[str, Chain]) -> Chain:
    """The steps up to and with a node; what follows a foreign step does not matter."""
    moving = inputs[:1] if node.op in _RESHAPING else [name for name in inputs if name not in constants]
    chain = chains.get(moving[0], ())
    if chain and isinstance(chain[-1], Other):
        return chain
    if len(moving) != 1 or moving[0] not in chains:
        return (*chain, Other(f"{node.op} of {len(moving)} computed values"))
    if node.op == "Add" and chain and isinstance(chain[-1], Affine):  # right after a linear layer it is its bias
        (amount,) = (name for name in node.inputs if name != moving[0])
        return (*chain[:-1], _shifted(chain[-1], constants[amount]()))
    step = _step(node, moving[0], constants)
    return chain if step is None else (*chain, step)


def _shifted(layer: Affine, amount: Tensor) -> Affine:
    shift = _as_bias(amount, len(layer.weight))
    return Affine(layer.weight, shift if layer.bias is None else layer.bias + shift)


def _step(node: Node, moving: str, constants: Mapping[str, Lazy]) -> Step | None:
    """The step of a node whose input ``moving`` comes from the samples; None if it changes nothing."""
    if node.op in ("Gemm", "MatMul"):
        return _layer(node, moving, constants)
    if node.op == "Relu":
        return Relu()
    if node.op in _RESHAPING:
        return Reshape(node.op, keeps_rows=node.op == "Flatten" and node.settings.get("axis", 1) == 1)
    return None if node.changes_nothing else Other(node.op)


def _layer(node: Node, moving: str, constants: Mapping[str, Lazy]) -> Step:
    """alpha x B + beta C (Gemm), or x B (MatMul), with x from the samples."""
    get = node.settings.get
    if node.inputs[0] != moving or get("transA", 0) or len(node.inputs) < 2:
        return Other(f"{node.op} with the samples as columns")
    B = constants[node.inputs[1]]()
    if B.ndim != 2:
        return Other(f"{node.op} with weights of shape {tuple(B.shape)}")
    weight = get("alpha", 1.0) * (B if get("transB", 0) else B.T)
    if len(node.inputs) < 3 or not node.inputs[2]:
        return Affine(weight)
    return Affine(weight, get("beta", 1.0) * _as_bias(constants[node.inputs[2]](), len(weight)))
