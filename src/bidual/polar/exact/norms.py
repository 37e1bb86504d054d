"""The steepest neuron under other norms of its weights than the Euclidean ones: exact."""

from functools import cached_property
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import Norm
from bidual.numerics.rounding import gamma, rounded_up
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons
from bidual.polar.exact.faces import Faces
from bidual.polar.exact.planes import LISTED
from bidual.polar.exact.rays import corner_directions
from bidual.types import Matrix

MOST_SIGNS = 12  # outputs whose signs are all tried


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
        directions = self._corners
        parts = directions.split(max(1, numbers // len(V)))
        values = torch.cat([steepness_in(self, V, sign * part) for sign in (1, -1) for part in parts])
        top = values.topk(min(LISTED, len(values)))
        chosen = top.indices[top.values > min(above, float(values.max()) * (1 - 1e-12))]
        (n, c), d = V.shape, self.X.shape[1]
        upper = float(values.max()) + gamma(n + 3 * d + c + 16) * self._size(V)
        return torch.cat([directions, -directions])[chosen], rounded_up(upper)

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
    signs = torch.tensor([[1.0, *rest] for rest in product((1.0, -1.0), repeat=c - 1)], dtype=V.dtype, device=V.device)
    return list((V @ signs.T).split(1, dim=1))
