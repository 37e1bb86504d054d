"""Real parallel networks from the gated model: U_k = z_k - z'_k with both parts in the cone of its gates."""

from dataclasses import dataclass, replace
from time import monotonic

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.architectures.modules import RebuildableModule
from bidual.architectures.parallel import ParallelMLP
from bidual.papers.methods.cone_split import shortest_split
from bidual.papers.methods.gate_cones import GateCones, Units
from bidual.polar import Neurons
from bidual.types import Blocks


@dataclass(frozen=True, eq=False)
class Violation:
    """How far a gated model is from being a ReLU network: each U_k, or -U_k if that is nearer, against its cone.

    Attributes:
        share: of the signs of pre-activations, (m_1 + 1) n per sub-network, those that the gates contradict.
        size: the sum of the wrong pre-activations over the sum of all, in absolute value.
    """

    share: float
    size: float

    def __str__(self) -> str:
        return f"{self.share:.1%} of the signs contradict the gates, {self.size:.1%} of the pre-activations by size"


@dataclass(frozen=True, eq=False)
class SubNetworks:
    """Real sub-networks and their output weights, for :class:`bidual.architectures.ParallelMLP`.

    Attributes:
        neurons: rows of length one in the encoding of :class:`bidual.operators.parallel.ParallelOperator`.
        weights: Z of the problem over them.
        splits: how many U_k were split.
        shortened: how many of the splits are as cheap as possible; the others are the closed form.
    """

    neurons: Neurons
    weights: Blocks
    splits: int = 0
    shortened: int = 0

    def decode(self, width: int, bias: bool = False, offset: Float[Tensor, " c"] | None = None) -> RebuildableModule:
        """The network; without sub-networks, one whose output is zero."""
        neurons, Z = self.neurons, self.weights
        if not len(neurons):
            neurons, Z = torch.eye(1, neurons.shape[1]).to(neurons), Z.new_zeros(1, *Z.shape[1:])
        return ParallelMLP(neurons, width, bias).decode(Z, offset)


def violation(gates: SubNetworkGates, X: Float[Tensor, "n d"], Z: Blocks) -> Violation:
    """How much of a lifted variable of :class:`bidual.architectures.GatedParallel` lies outside the cones."""
    u, index, _ = _live(gates, Z)
    if not len(u):
        return Violation(0.0, 0.0)
    cones = GateCones.of(gates, X)[index]
    slack = torch.cat([part.flatten(1) for part in cones.slacks(u)], 1)
    margin = 1e-12 * torch.cat([part.flatten(1) for part in cones.sizes(u)], 1)
    wrong = torch.stack([(sign * slack).clamp(max=0).sum(1) for sign in (1.0, -1.0)])
    slack = torch.where(wrong[0] >= wrong[1], 1.0, -1.0)[:, None] * slack
    total = float(slack.abs().sum())
    outside = -float(slack.clamp(max=0).sum())
    return Violation(float((slack < -margin).double().mean()), outside / total if total > 0 else 0.0)


def real_sub_networks(
    gates: SubNetworkGates, X: Float[Tensor, "n d"], Z: Blocks, *, max_time: float | None = None, tol: float = 1e-2
) -> SubNetworks:
    r"""z_k and z'_k of cone k with z_k - z'_k = U_k, as sub-networks with output weights +1 and -1.

    On X they have the predictions of the gated model. Each output is split separately. After the closed form of
    :meth:`GateCones.split` comes :func:`shortest_split`, the most expensive first, for ``max_time`` seconds.
    """
    u, index, output = _live(gates, Z)
    cones = GateCones.of(gates, X)[index]
    p = cones.split(u)
    began, shortened = monotonic(), 0
    for q in torch.argsort(cones.price(p, u), descending=True).tolist():
        if max_time is not None and monotonic() - began >= max_time:
            break
        deadline, one = None if max_time is None else began + max_time, torch.tensor([q])
        p[q] = shortest_split(cones[one], u[one], tol=tol, deadline=deadline)[0]
        shortened += deadline is None or monotonic() < deadline
    both, columns = torch.cat([u + p, p]), torch.cat([output, output])
    signs = gates.signs.to(u)[index].repeat(2, 1)
    side = torch.cat([u.new_ones(len(u)), -u.new_ones(len(u))])
    parts = encoded(both, signs, side, columns, Z.shape[2])
    return replace(parts, splits=len(u), shortened=shortened)


def encoded(
    z: Units,
    signs: Float[Tensor, "q m"],
    side: Float[Tensor, " q"],
    columns: Tensor,
    n_outputs: int,
) -> SubNetworks:
    """Sub-networks w_j = s_j z_j with second-layer signs s_j and output weight ``side`` in one column; no zeros."""
    length = torch.linalg.vector_norm(z, dim=(1, 2))
    alive = length > 0
    z, signs, length = z[alive], signs[alive], length[alive]
    w = signs[:, :, None] * z / length[:, None, None]
    slots = torch.stack([w * (signs > 0)[:, :, None], w * (signs < 0)[:, :, None]], 1)
    weights = z.new_zeros(len(z), 1, n_outputs)
    weights[torch.arange(len(z)), 0, columns[alive]] = side[alive] * length
    return SubNetworks(slots.flatten(1), weights)


def _live(gates: SubNetworkGates, Z: Blocks) -> tuple[Units, Tensor, Tensor]:
    """The non-zero U_k of every output as rows, with k and the output."""
    by_output = Z.reshape(len(Z), gates.width, -1, Z.shape[2]).movedim(3, 1)
    index, output = by_output.flatten(2).any(2).nonzero(as_tuple=True)
    return by_output[index, output], index, output
