"""Neurons from lifted variables, and their prices."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.gauges import GAUGES, Factorised, Factors, Gauge
from bidual.types import Blocks, as_protocol


def make_gauge(penalty: str | Gauge) -> Gauge:
    """A gauge from its name or an instance; it must price factors, because networks are made of them."""
    if not isinstance(penalty, Gauge) and not (isinstance(penalty, str) and penalty in GAUGES):
        raise ValueError(f"penalty must be one of {sorted(GAUGES)}, or a Gauge, got {penalty!r}.")
    gauge = penalty if isinstance(penalty, Gauge) else GAUGES[penalty]()
    if not isinstance(gauge, Factorised):
        raise ValueError(f"penalty must be a gauge that is Factorised; {type(gauge).__name__} is not.")
    return gauge


def live_neurons(gauge: Gauge, Z: Blocks) -> tuple[Float[Tensor, "d m"], Float[Tensor, "b m"], Int[Tensor, " m"]]:
    """U (d, m), W (b, m) and the block of every neuron that is not zero; one zero neuron if all are."""
    U, W = as_protocol(gauge, Factorised).split(Z)
    size = torch.linalg.vector_norm(U, dim=1) * torch.linalg.vector_norm(W, dim=1)
    alive = size > 1e-14 * size.max().clamp(min=torch.finfo(Z.dtype).tiny)
    if not bool(alive.any()):
        alive[0, 0] = True
    block, column = alive.nonzero(as_tuple=True)
    return U[block, :, column].T, W[block, :, column].T, block


def price(gauge: Gauge, U: Float[Tensor, "d m"], W: Float[Tensor, "b m"]) -> float:
    """Of neurons that share one block."""
    return as_protocol(gauge, Factorised).factor_penalty(Factors(U[None], W[None]))


def price_by_gate(gauge: Gauge, U: Float[Tensor, "d m"], W: Float[Tensor, "b m"], gate: Int[Tensor, " m"]) -> float:
    """Of neurons in the blocks of their gates."""
    masks = [gate == p for p in gate.unique()]
    return sum(price(gauge, U[:, mask], W[:, mask]) for mask in masks)


def balanced(
    neurons: Float[Tensor, "m d"], Z: Float[Tensor, "m a c"]
) -> tuple[Float[Tensor, "q d"], Float[Tensor, "q a c"]]:
    """The neurons in use with |u_j| = |V_j| = |Z_j|^(1/2), where weight decay is least; one of zeros if none is."""
    used = Z.abs().amax((1, 2)) > 0
    if not bool(used.any()):
        return Z.new_zeros(1, neurons.shape[1]), Z.new_zeros(1, *Z.shape[1:])
    size = torch.linalg.vector_norm(Z[used], dim=(1, 2)).sqrt()
    return neurons.to(Z)[used] * size[:, None], Z[used] / size[:, None, None]


def check_units(neurons: Float[Tensor, "m d"]) -> None:
    length = torch.linalg.vector_norm(neurons, dim=1)
    if bool((length - 1).abs().gt(1e-9).any()):
        raise ValueError("neurons must have length one; divide each by its norm and multiply its output weights.")
