"""The steepest neuron under the norms l1, l2, linf on the two layers (BM Theorem B.1): exact, or by a search."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import comb, inf

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.norms import Norm
from bidual.numerics.rounding import gamma, rounded_up
from bidual.patterns.exact_arrangement import Integers, distinct_hyperplanes, kernels, whole
from bidual.polar import Faces, LocalSearch, NeuronOracle, Neurons, SteepestNeurons
from bidual.polar.exact.faces import LISTED
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.types import Matrix

MOST_SIGNS = 12  # outputs whose signs are all tried
_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01)


class NormFaces(NeuronOracle):
    r"""max over |u|_C <= 1 of |V^T (X u)_+|_R*, with R* the dual of R: the polar of BM Theorem B.1 (eq. 113).

    With C = l2 it is the Euclidean maximum of :class:`Faces`: at V if R = l2; over every column of V if R = l1, because
    R* is the largest entry; and over V s with all signs s if R = linf, because |z|_1 is the largest s^T z. With C = l1
    or linf the maximum is at a corner (:func:`corner_directions`), because a norm of a linear function is convex on
    every activation cone. There is no rank reduction then, since these norms are not invariant under rotation: the
    number of corners grows like (n + d)^(d-1) for l1, and (n + d^2)^(d-1) for linf.
    """

    def __init__(self, X: Float[Tensor, "n d"], hidden: Norm, output: Norm) -> None:
        self._take(X)
        self.hidden_norm, self.output_norm = hidden, output
        self._faces = Faces(self.X) if hidden.order == 2 else None

    @cached_property
    def _corners(self) -> Float[Tensor, "q d"]:
        return corner_directions(self.X, self.hidden_norm).to(self.X)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        neurons, upper = self._at_corners(V, above) if self._faces is None else self._by_faces(self._faces, V, above)
        if seeds is not None:
            neurons = torch.cat([neurons, seeds.to(self.X)])
        return ranked(self, V, neurons, above, upper)

    def _by_faces(self, faces: Faces, V: Tensor, above: float) -> tuple[Neurons, float]:
        """Steep directions and a bound, by one or many Euclidean queries.

        An entry of V s is a sum of c numbers, and ``steepest`` scales rows and queries by ten products and quotients:
        every row of a query is known to gamma(c + 16) times |v_i|_R*.
        """
        found = [faces.steepest(query, above) for query in _queries(V, self.output_norm)]
        upper = max(one.bracket.upper for one in found) + gamma(V.shape[1] + 16) * self._size(V)
        return torch.cat([one.neurons for one in found]), rounded_up(upper)

    def _at_corners(self, V: Tensor, above: float, numbers: int = 4_000_000) -> tuple[Neurons, float]:
        """The best corner; a term v_ik x_ij u_j of the value at u goes through 2 d + 4 operations in u_j, which is
        scaled to norm one twice, d + n in the two products, and c + 2 in the norm."""
        directions = torch.cat([self._corners, -self._corners])
        parts = directions.split(max(1, numbers // len(V)))
        values = torch.cat([steepness_in(self, V, part) for part in parts])
        top = values.topk(min(LISTED, len(values)))
        chosen = top.indices[top.values > min(above, float(values.max()) * (1 - 1e-12))]
        (n, c), d = V.shape, self.X.shape[1]
        upper = float(values.max()) + gamma(n + 3 * d + c + 16) * self._size(V)
        return directions[chosen], rounded_up(upper)

    def _size(self, V: Tensor) -> float:
        """sum_i |v_i|_R* |x_i|_2 |u|_2, which bounds the sum of the absolute values of the terms."""
        return float(self.output_norm.dual.value(V).sum()) * self.hidden_norm.times_l2(self.X.shape[1])


def steepness_in(oracle: NeuronOracle, V: Matrix, neurons: Neurons) -> Float[Tensor, " q"]:
    """|V^T (X u)_+|_R* / |u|_C for every neuron u in the oracle's norms, 0 for the zero neuron."""
    hidden = (oracle.X @ oracle.hidden_norm.unit(neurons).T).clamp(min=0)
    return oracle.output_norm.dual.value(hidden.T @ V)


def ranked(
    oracle: NeuronOracle, V: Matrix, neurons: Neurons, above: float, upper: float = torch.inf
) -> SteepestNeurons:
    """The steepest of some neurons, scaled to norm one."""
    values = steepness_in(oracle, V, neurons)
    return SteepestNeurons.ranked(oracle.hidden_norm.unit(neurons), values, above, upper, LISTED)


def _queries(V: Tensor, output: Norm) -> list[Tensor]:
    """Matrices of which the largest Euclidean polar is the polar at V in the dual of the output norm."""
    if output.order == 2:
        return [V]
    if output.order == 1:
        return list(V.split(1, dim=1))
    c = V.shape[1]
    if c > MOST_SIGNS:
        raise ValueError(
            f"the linf norm on {c} outputs calls the exact oracle {2 ** (c - 1):,} times; at most {MOST_SIGNS} outputs "
            "are possible. Use NormSearch, or the norm l1 or l2 on the outputs."
        )
    signs = V.new_tensor([[1.0, *rest] for rest in product((1.0, -1.0), repeat=c - 1)])
    return list((V @ signs.T).split(1, dim=1))


@dataclass(eq=False)
class NormSearch(NeuronOracle):
    r"""max over |u|_C <= 1 of |V^T (X u)_+|_R*, climbed from many starts and bounded by a Euclidean oracle.

    A start climbs towards the u of norm one that is steepest for the linear function which supports the objective on
    its pattern (a Frank-Wolfe step; the best of a few step lengths is taken). The upper bound is that of
    ``euclidean`` times the least k and k' with |u|_2 <= k |u|_C and |z|_R* <= k' |z|_2; infinite without it. It is
    loose by up to k k', so training ends by the search, and the certificate states the proved bound.
    """

    X: Float[Tensor, "n d"]
    hidden_norm: Norm
    output_norm: Norm
    euclidean: NeuronOracle | None = None
    starts: int = 256
    rounds: int = 40
    seed: int = 0
    proves = False

    def __post_init__(self) -> None:
        self._take(self.X)
        if self.euclidean is not None and not self.euclidean.hidden_norm.order == self.euclidean.output_norm.order == 2:
            raise ValueError("euclidean must be an oracle for l2 norms, such as Faces(X) or DiagonalBound(X).")

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        U = self._starts(V, seeds)
        top = steepness_in(self, V, U)
        for _ in range(self.rounds):
            before = top
            U, top = self._climbed(U, top, V)
            if not bool((top > before * (1 + 1e-9)).any()):
                break
        return ranked(self, V, U, above, self._upper(V, above))

    def _upper(self, V: Tensor, above: float) -> float:
        if self.euclidean is None:
            return inf
        factor = self.hidden_norm.times_l2(self.X.shape[1]) * self.output_norm.dual.over_l2(V.shape[1])
        plain = torch.where(self.lengths > 0, 1 / self.lengths, 0.0)[:, None] * V  # for unscaled samples
        upper = factor * (1 + gamma(8)) * self.euclidean.steepest(plain, above / factor).bracket.upper
        return rounded_up(upper + self._rounding(V))  # two roundings of every entry are less than those of a scaling

    def _starts(self, V: Tensor, seeds: Tensor | None) -> Neurons:
        """Steep directions in l2, the corner of the ball nearest to each, and the caller's neurons."""
        steep = LocalSearch(self.X, self.starts, rounds=5, seed=self.seed).steepest(V).neurons
        known = [] if seeds is None else [seeds.to(self.X)]
        return self.hidden_norm.unit(torch.cat([steep, self.hidden_norm.aligned(steep), *known]))

    def _climbed(self, U: Neurons, top: Float[Tensor, " q"], V: Tensor) -> tuple[Neurons, Float[Tensor, " q"]]:
        towards = self._corners(U, V) - U
        for step in _STEPS:
            moved = self.hidden_norm.unit(U + step * towards)
            value = steepness_in(self, V, moved)
            better = value > top
            U, top = torch.where(better[:, None], moved, U), torch.where(better, value, top)
        return U, top

    def _corners(self, U: Neurons, V: Tensor) -> Neurons:
        """argmax over |u|_C <= 1 of <g, u> with g = X^T D V s, where s supports the dual norm at V^T (X u)_+."""
        hidden = self.X @ U.T
        support = self.output_norm.aligned(hidden.clamp(min=0).T @ V)
        return self.hidden_norm.aligned(((V @ support.T) * (hidden > 0)).T @ self.X)


def corner_directions(X: Float[Tensor, "n d"], norm: Norm) -> Float[Tensor, "q d"]:
    r"""Directions u of norm one where convex functions peak, one of each pair +-u.

    Let the norm be l1 or linf, and cut R^d by the hyperplanes of X and by the norm's creases (:meth:`Norm.creases`).
    A cell of that arrangement is a cone K with no line in it, since the creases span R^d; on K the pattern is
    constant, and so is the linear function that equals |u|. So K cut to |u| <= 1 is the convex hull of 0 and of K's
    extreme rays cut to norm one. An extreme ray is the kernel of d - 1 independent hyperplanes, spanned by their
    minors of order d - 1. The cells that share a pattern fill its cone, so a function that is convex on every
    activation cone is largest at one of these points.

    Minors are exact, and every entry of a direction is off by its own size times gamma(d + 2), from its division by the
    norm.
    """
    d = X.shape[1]
    check_corners(len(X), d, norm)
    parts = whole(X.detach().cpu().double().numpy()), whole(norm.creases(d).numpy())
    rows = distinct_hyperplanes(np.concatenate(parts))
    directions = np.unique(np.concatenate([_directions(part) for part in kernels(rows)]), axis=0)
    return norm.unit(torch.from_numpy(directions))


def corner_count(n: int, d: int, norm: Norm) -> int:
    """The most directions that :func:`corner_directions` computes before those that are equal are dropped."""
    return comb(n + len(norm.creases(d)), d - 1)


def check_corners(n: int, d: int, norm: Norm) -> None:
    """Refuse before any work if the directions would need more memory than is free."""
    rows = n + len(norm.creases(d))
    need = corner_count(n, d, norm) * 8 * (3 * d + 8) + comb(rows, max(d - 2, 0)) * 100 * d * (d + 1)
    there = available_bytes(torch.device("cpu"))
    if need > there:
        raise ValueError(
            f"{n} samples of {d} features have up to {corner_count(n, d, norm):,} corners under the {norm.name} norm, "
            f"whose enumeration would need {human_bytes(need)}, and {human_bytes(there)} are free; use NormSearch."
        )


def _directions(kernels: Integers) -> Float[ndarray, "q d"]:
    """Over the largest of their entries, each rounded once. The first entry that is not zero is positive, so that equal
    and opposite kernels have equal numbers."""
    u = (kernels / np.abs(kernels).max(1, initial=0, keepdims=True)).astype(np.float64)
    leading = np.take_along_axis(u, (u != 0).argmax(1)[:, None], 1)
    return u * np.sign(leading) + 0.0
