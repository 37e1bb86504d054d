"""A computation graph, in the words of ONNX, as the steps from its input to its output."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch import Tensor

from bidual.io.foreign.steps import Affine, Other, Relu, Reshape, Shift, Step, as_bias, two_layers
from bidual.io.foreign.weights import TwoLayerWeights

Lazy = Callable[[], Tensor]  # float64; read when it is needed, so that a large file of another kind is refused at once
Chain = tuple[Step, ...]

_MOST_NODES = 500  # chains of steps grow with them
_RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Node:
    """One operation; an input that is left out has the name ""."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Nodes in the order in which they run.

    Attributes:
        nodes: the operations.
        constants: how to read each stored tensor.
        input: the name of the samples.
        output: the name of the network's outputs.
        n_features: how many numbers a sample has, if the graph says so.
        has_head: whether the network proper ends with the last linear layer after a ReLU, before ``output``.
    """

    nodes: Sequence[Node]
    constants: Mapping[str, Lazy]
    input: str
    output: str
    n_features: int | None = None
    has_head: bool = False

    def weights(self) -> TwoLayerWeights:
        chains = _chains(self)
        ends = [chain for chain in chains.values() if self.has_head and _ends_with_layer(chain)]
        chain = ends[-1] if ends else chains.get(self.output, (Other("an output that does not depend on the input"),))
        return two_layers(chain, self.n_features)


def _ends_with_layer(chain: Chain) -> bool:
    return any(isinstance(step, Relu) for step in chain) and isinstance(chain[-1], (Affine, Shift))


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
    if node.op == "Identity" or (node.op == "Cast" and node.settings["floating"]):
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
    step = _step(node, moving[0], constants)
    return chain if step is None else (*chain, step)


def _step(node: Node, moving: str, constants: Mapping[str, Lazy]) -> Step | None:
    """The step of a node whose input ``moving`` comes from the samples; None if it changes nothing."""
    if node.op in ("Gemm", "MatMul"):
        return _layer(node, moving, constants)
    if node.op == "Add":
        (amount,) = (name for name in node.inputs if name != moving)
        return Shift(constants[amount]())
    if node.op == "Relu":
        return Relu()
    if node.op in _RESHAPING:
        return Reshape(node.op, keeps_rows=node.op == "Flatten" and node.settings.get("axis", 1) == 1)
    if node.op == "Identity" or (node.op == "Cast" and node.settings["floating"]):
        return None
    return Other(node.op)


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
    return Affine(weight, get("beta", 1.0) * as_bias(constants[node.inputs[2]](), len(weight)))
