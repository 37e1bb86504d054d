"""Every oracle that discovery finds keeps the oracles' contract, and the contract catches wrong oracles."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L1, L2, LINF, NORMS
from bidual.operators.patches import Convolution, ImagePatches
from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.papers.methods.norm_oracles import NormFaces, NormSearch
from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.polar import (
    DiagonalBound,
    Faces,
    LocalSearch,
    NeuronOracle,
    Pooled,
    Repeated,
    RidgeSearch,
    Sphere,
    SteepestNeurons,
)
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.witness import ProductProof
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.descent import AskedBranches
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.polar.subnetworks.witness import ParallelProof
from bidual.testing import check_oracle, concrete_subclasses

Make = Callable[[Tensor], NeuronOracle]


def pooled(inner: Make, X: Tensor) -> Pooled:
    """Images of two patches, a sample and zeros, whose average is half of what a neuron computes of the sample."""
    d = X.shape[1]
    images = torch.stack([X, torch.zeros_like(X)], 1).reshape(len(X), 1, 2 * d)
    return Pooled(ImagePatches(images, Convolution.of(1, d, stride=d, pooling=(1,))), inner)


def half_relu(X: Tensor, U: Tensor) -> Tensor:
    return 0.5 * (X @ U.T).clamp(min=0)


def tree(widths: tuple[int, ...], X: Tensor, U: Tensor) -> Tensor:
    """A unit adds up the units below it with signs +1 and -1, from the first layer on."""
    shape = [part for m in reversed(widths) for part in (2, m)]
    H = (U.reshape(len(U), *shape, X.shape[1]) @ X.T).clamp(min=0)
    for _ in widths:
        H = H.sum(-2)
        H = (H.select(-2, 0) - H.select(-2, 1)).clamp(min=0)
    return H.T


def pruned(widths: tuple[int, ...], U: Tensor) -> Tensor:
    """The m longest of the 2 m inputs of every unit, from the first layer on."""
    shape = [2 * m for m in reversed(widths)]
    kept = U.reshape(len(U), *shape, -1)
    for axis in range(len(widths), 0, -1):
        lengths = kept.square().flatten(axis + 1).sum(-1)
        least = lengths.topk(widths[len(widths) - axis]).values[..., -1:]
        keep = lengths >= least
        kept = kept * keep.reshape(*keep.shape, *[1] * (kept.ndim - keep.ndim))
    return kept.reshape(U.shape)


def of_widths(cls: type, *widths: int, **settings: Any) -> tuple[Make, dict[str, Any]]:
    size = 1
    for m in widths:
        size *= 2 * m
    network = {"features": partial(tree, widths), "feasible": partial(pruned, widths), "size": size}
    return partial(cls, widths=widths, **settings), network | {"outputs": (1,)}


def all_outputs(X: Tensor) -> AllOutputs:
    return AllOutputs(RelaxedBound(X, 2, nodes=0), max_queries=5)


def witnessed(X: Tensor) -> ProductProof:
    """The multipliers of one dual point, asked about others."""
    oracle = ProductBound(X, steps=3)
    W = torch.linspace(-1, 2, len(X), dtype=torch.float64)[:, None] / max(len(X), 1)
    return ProductProof(X, oracle.proofs(oracle.start(W)), starts=64)


def branched(X: Tensor) -> ParallelProof:
    """The same of sub-networks."""
    bound = ProductBound(X, steps=3)
    W = torch.linspace(-1, 2, len(X), dtype=torch.float64)[:, None]
    W = W / max(float(W.norm()), 1.0)
    branches = AskedBranches.start(bound, W, deep=False).asked
    return ParallelProof(X, 2, tuple(one.proof(bound, 1.0) for one in branches))


EXACT, SLOW = {"width": 1e-6}, {"outputs": (2,)}
EVERY: dict[str, tuple[Make, dict[str, Any]]] = {
    "Faces": (Faces, EXACT),
    "Sphere": (partial(Sphere, tol=1e-3), {"width": 1e-3 + 1e-9} | SLOW),
    "SemidefiniteBound": (partial(SemidefiniteBound, max_steps=30), SLOW),
    "DiagonalBound": (partial(DiagonalBound, steps=4), SLOW),
    "DiagonalBound without sums": (partial(DiagonalBound, steps=4, sums=False), {"outputs": (1,)}),
    "BranchAndBound": (partial(BranchAndBound, max_nodes=4, steps=30), SLOW),
    "ProductBound": (partial(ProductBound, steps=3), {"outputs": (1,)}),
    "ProductBound without signs": (partial(ProductBound, steps=3, most_outputs=0), SLOW),
    "ProductBound of clusters": (partial(ProductBound, steps=3, dense=4, clusters=3), {"outputs": (1,)}),
    "ProductProof": (witnessed, {"outputs": (1,)}),
    "LocalSearch": (LocalSearch, {}),
    "RidgeSearch": (RidgeSearch, {}),
    **{
        f"NormFaces {h} {o}": (partial(NormFaces, hidden=NORMS[h], output=NORMS[o]), EXACT)
        for h in NORMS
        for o in NORMS
    },
    **{
        f"NormSearch {h.name} {o.name}": (lambda X, h=h, o=o: NormSearch(X, h, o, Faces(X), starts=64), {})
        for h, o in ((L1, L2), (LINF, L1), (L2, LINF))
    },
    "Pooled": (partial(pooled, Faces), {"features": half_relu, **EXACT}),
    "Pooled search": (partial(pooled, LocalSearch), {"features": half_relu}),
    "Repeated": (partial(Repeated, make=Faces), EXACT),
    "Repeated search": (partial(Repeated, make=LocalSearch), {}),
    "ExactParallel": of_widths(ExactParallel, 1),
    "RelaxedBound": of_widths(RelaxedBound, 2),
    "RelaxedBound of four layers": of_widths(RelaxedBound, 2, 1),
    "ParallelProof": (branched, of_widths(RelaxedBound, 2)[1]),
    "ParallelSearch": of_widths(ParallelSearch, 2, starts=64),
    "AllOutputs": (all_outputs, of_widths(RelaxedBound, 2)[1] | {"outputs": (2,)}),
}


@pytest.mark.parametrize("name", EVERY)
def test_oracle(name: str) -> None:
    make, promises = EVERY[name]
    check_oracle(make, torch.Generator().manual_seed(0), **promises)


def test_every_oracle_is_checked() -> None:
    checked = {type(make(torch.ones(2, 2, dtype=torch.float64))) for make, _ in EVERY.values()}
    shipped = concrete_subclasses(NeuronOracle, "bidual.polar", "bidual.papers.methods")
    assert checked >= set(shipped)


class Wrong(Faces):
    """The exact oracle with one mistake in its answers."""

    def __init__(self, X: Tensor, mistake: Callable[[Faces, Tensor, SteepestNeurons], SteepestNeurons]) -> None:
        super().__init__(X)
        self.mistake = mistake

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        return self.mistake(self, V, super().steepest(V, above, seeds))


def bracket(lower: float, upper: float) -> Callable[[Faces, Tensor, SteepestNeurons], SteepestNeurons]:
    """Both ends times a factor."""

    def mistake(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
        return replace(found, bracket=Bracket(lower * found.bracket.lower, upper * found.bracket.upper))

    return mistake


def doubled_neurons(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    return replace(found, neurons=2 * found.neurons)


def worst_first(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    return replace(found, neurons=found.neurons.flip(0), values=found.values.flip(0))


def unlisted(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    return replace(found, neurons=found.neurons[1:], values=found.values[1:])


def nothing_listed(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    """A bracket of the right upper end without any neuron."""
    return replace(oracle._nothing(found.bracket.upper))


def positive_half(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    """Directions of the half space u_1 >= 0 only."""
    keep = found.neurons[:, 0] >= 0
    values = found.values[keep]
    top = float(values[0]) if len(values) else 0.0
    return SteepestNeurons(Bracket(top, top * (1 + 1e-9)), found.neurons[keep], values)


def plus_one(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    return replace(found, bracket=Bracket(found.bracket.lower, found.bracket.upper + 1e-9))


def writes_into_V(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    V.mul_(1 + 1e-6)
    return found


def stale(oracle: Any, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    """The first answer for every question of the same shape."""
    oracle.kept = getattr(oracle, "kept", {})
    return oracle.kept.setdefault(tuple(V.shape), found)


def trusts_nan(oracle: Faces, V: Tensor, found: SteepestNeurons) -> SteepestNeurons:
    return found if bool(torch.isfinite(V).all()) else oracle._nothing(0.0)


MISTAKES = {
    "a lower bound called upper": (bracket(1, 0.999), "at least|lower <= upper"),
    "a lower bound that nothing attains": (bracket(1.0000001, 1.001), "lower is attained"),
    "an upper bound called lower": (bracket(0.999, 1), "lower is attained"),
    "a wide bracket": (bracket(1, 1.1), "as narrow as promised"),
    "neurons that are not units": (doubled_neurons, "neurons are units"),
    "the steepest last": (worst_first, "lower is attained|best first"),
    "the steepest not listed": (unlisted, "lower is attained"),
    "no neurons": (nothing_listed, "as narrow as promised|are listed"),
    "one half of the sphere": (positive_half, "at least the"),
    "wrong scale": (plus_one, "times the bracket"),
    "changed arguments": (writes_into_V, "X and V stay as they were|values are the neurons'"),
    "stale state": (stale, "another question"),
    "trust in nan": (trusts_nan, "proves nothing"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_oracle_is_caught(name: str) -> None:
    mistake, broken = MISTAKES[name]
    with pytest.raises(AssertionError, match=broken):
        check_oracle(lambda X: Wrong(X, mistake), torch.Generator().manual_seed(0), width=1e-6)


class OnlyPositiveOutputs(Faces):
    """Forgets that |V^T f| is large where V^T f is negative."""

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return super()._steepest(V.clamp(min=0), above, seeds)


class ForgetsLengths(Faces):
    """Answers for rows of length one."""

    def __init__(self, X: Tensor) -> None:
        super().__init__(X)
        self.lengths = (self.lengths > 0).to(X)


class SearchThatProves(LocalSearch):
    """Calls what a search found the maximum."""

    proves = True

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        found = super()._steepest(V, above, seeds)
        return replace(found, bracket=Bracket(found.bracket.lower, found.bracket.lower * (1 + 1e-9)))


@pytest.mark.parametrize("cls", [OnlyPositiveOutputs, ForgetsLengths, SearchThatProves])
def test_a_wrong_algorithm_is_caught(cls: Make) -> None:
    with pytest.raises(AssertionError, match="broken: oracle"):
        check_oracle(partial(cls), torch.Generator().manual_seed(0))
