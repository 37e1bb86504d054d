"""Fewer sub-networks, the same predictions, no higher path norm."""

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures.modules import ParallelNetwork
from bidual.architectures.parallel import squared_paths
from bidual.numerics.caratheodory import caratheodory
from bidual.papers.methods.path_norm import rescaled, root


def prune(
    module: ParallelNetwork, X: Float[Tensor, "n d"] | None = None, *, intercept: bool = False
) -> ParallelNetwork:
    r"""The network without its empty sub-networks, those with path norm zero.

    With samples X it is also without those that are off on all of them, and at most n c of the others are left, with
    the same predictions on X and no higher path norm (CP Theorem 1, whose argument needs only a price and a
    contribution of each part). With ``intercept`` predictions may change by a constant per output.
    """
    with torch.no_grad():
        layers = rescaled([layer.detach() for layer in module.layers])
        price = root(squared_paths(layers).sum(1))
        kept = price > 0
        if X is None or not bool(kept.any()):
            return _with(module, [layer[kept] for layer in layers], len(price))
        parts = (module.hidden(X.to(module.bias)) @ module.layers[-1].detach())[kept]  # (K, n, c)
        outputs = parts - parts.mean(1, keepdim=True) if intercept else parts
        columns = (outputs / price[kept][:, None, None]).flatten(1).T
        mass = torch.where(parts.flatten(1).any(1), price[kept], 0.0)
        alive = mass > 0
        share = torch.zeros_like(mass)
        if bool(alive.any()):
            share[alive] = caratheodory(columns[:, alive].cpu(), mass[alive].cpu()).to(mass) / mass[alive]
        chosen = share > 0
        *hidden, last = (layer[kept][chosen] for layer in layers)
        return _with(module, [*hidden, last * share[chosen][:, None, None]], len(price))


def with_networks(module: ParallelNetwork, count: int) -> ParallelNetwork:
    """The network with exactly ``count`` sub-networks; added ones have zero weights."""
    small = prune(module)
    needed = small.n_neurons
    if count < max(needed, 1):
        raise ValueError(
            f"the network needs K = {needed} sub-networks, got {count}; use at least that many, prune it on its "
            "samples, or train with a larger beta."
        )
    layers = [layer.detach() for layer in small.layers]
    missing = count - len(layers[0])
    return _with(module, [torch.cat([layer, layer.new_zeros(missing, *layer.shape[1:])]) for layer in layers], count)


def _with(module: ParallelNetwork, layers: list[Tensor], most: int) -> ParallelNetwork:
    """A network of these layers; one empty sub-network if there is none."""
    if not len(layers[0]):
        layers = [layer.new_zeros(min(most, 1), *layer.shape[1:]) for layer in layers]
    new = ParallelNetwork(**{**module.sizes, "n_networks": len(layers[0])}).to(module.bias)
    with torch.no_grad():
        for old, layer in zip(new.layers, layers, strict=True):
            old.copy_(layer)
        new.bias.copy_(module.bias)
    return new
