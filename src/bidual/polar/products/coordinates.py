"""Multipliers as numbers without constraints, which L-BFGS can move."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar.products.cells import Cell
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Multipliers, Pairs, Support
from bidual.types import Matrix

Vector = Float[Tensor, " p"]
# How far one unit of a coordinate goes: logarithms, roots of weights, cones and the balance have different curvatures.
# Chosen on breast cancer, diabetes, the Gaussian teacher, heart and parkinsons; the bound is valid whatever they are.
_SLACK, _OMEGA, _LOG_IN_CLUSTERS, _LOG_SHARE = 6.0, 1.5, 10.0, 3.0
_ROOT, _PAIR_ROOT, _ROWS, _BALANCE = 1.0, 3.0, 200, 0.03  # pairs of more than so many rows in proportion
_NEW_PAIRS, _LATER_PAIRS = 0.5, 0.005  # the sum of the weights that new pairs start with, in units of D / m
_NEGLIGIBLE = 1e-5  # a pair's weight, in units of sqrt(D_i D_j)
_CONE, _FORM_CONE = 1e-3, 1e-4  # the length that cones start with
_SMALL = 1e-16  # a weight that may grow again; the root of zero would stay


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A place in the coordinates of the multipliers of one cell: the parts of a vector, and where pairs are."""

    cell: Cell
    pairs: Pairs
    vector: Vector

    @classmethod
    def of(cls, cell: Cell, at: Multipliers) -> Self:
        """The coordinates of given multipliers; weights of zero become tiny, so that they can grow."""
        parts = [at.slack.log(), at.omega.log()]
        parts += [] if at.pairs.shares is None else [at.pairs.shares.log()]
        parts += [at.balance.reshape(1)]
        parts += [weights.clamp(min=_SMALL).sqrt() for weights in (at.on_plus, at.on_minus)]
        cones = (at.cone_plus, at.cone_minus, at.form_cones)
        parts += [] if cell.signs is None else [_root(g) for g in cones]
        parts += [at.form_pairs.clamp(min=_SMALL).sqrt(), *(value.sqrt() for value in at.pairs.values)]
        return cls(cell, at.pairs, torch.cat([part.reshape(-1) for part in parts]))

    @classmethod
    def start(cls, cell: Cell, V: Matrix, labels: Tensor | None = None) -> Self:
        """A valid place for samples of spectral norm one and V of norm one, without pairs."""
        X = cell.X
        (m, d), k = (len(cell.free), X.shape[1]), len(cell.forms)
        D = X.new_full((m,), 0.5)
        weights = (0.1 * torch.linalg.vector_norm(V[cell.free], dim=1))[:, None].expand(m, k)
        labels = None if labels is None else labels[cell.free]
        shares = None if labels is None else D.sqrt()
        pairs = Pairs.none(X, m if labels is None else int(labels.max()) + 1, labels, shares)
        zeros, forms = X.new_zeros(m, d), X.new_full((k, k), 1e-4)
        at = Multipliers(
            D.rsqrt(), D.sqrt(), pairs, weights, weights, zeros, zeros, X.new_zeros(()), forms, X.new_zeros(k, d)
        )
        return cls.of(cell, at)

    @property
    def sizes(self) -> list[int]:
        m, k = len(self.cell.free), len(self.cell.forms)
        d = 0 if self.cell.signs is None else self.cell.X.shape[1]  # cones need signs of the outputs
        shares = [] if self.pairs.shares is None else [m]
        return [m, m, *shares, 1, m * k, m * k, m * d, m * d, k * d, k * k, *(len(at) for at in self.pairs.where)]

    def _parts(self, vector: Vector) -> list[Tensor]:
        return list(vector.split(self.sizes))

    def scales(self) -> Vector:
        """How far a step of one goes in every coordinate; zero for those that have no meaning in this cell."""
        clustered = self.pairs.shares is not None
        logs = [_LOG_IN_CLUSTERS, _LOG_IN_CLUSTERS, _LOG_SHARE] if clustered else [_SLACK, _OMEGA]
        signed = float(self.cell.signs is not None)
        pair = _PAIR_ROOT * max(1.0, self.pairs.count / _ROWS if signed and not clustered else 1.0)
        lengths = [*logs, _BALANCE * signed, _ROOT, _ROOT, *[signed * _ROOT] * 3, _ROOT, *[pair] * 3]
        return torch.cat([self.vector.new_full((n,), s) for n, s in zip(self.sizes, lengths, strict=True)])

    def multipliers(self, vector: Vector) -> Multipliers:
        slack, omega, *rest = self._parts(vector)
        shares = None if self.pairs.shares is None else rest.pop(0).exp()
        balance, plus, minus, cone_plus, cone_minus, form_cones, form_pairs, *roots = rest
        m, k = len(slack), len(self.cell.forms)
        return Multipliers(
            omega.exp(),
            slack.exp(),
            replace(self.pairs, values=tuple(root.square() for root in roots), shares=shares),
            plus.view(m, k).square(),
            minus.view(m, k).square(),
            self._cone(cone_plus, m),
            self._cone(cone_minus, m),
            balance[0],
            form_pairs.view(k, k).square(),
            self._cone(form_cones, k),
        )

    def _cone(self, root: Vector, count: int) -> Float[Tensor, "m d"]:
        """g = |r| r; zero in cells where cones have no coordinates."""
        d = self.cell.X.shape[1]
        return root.new_zeros(count, d) if self.cell.signs is None else _cone(root.view(count, d))

    def with_cones(self, V: Matrix, M: Tensor) -> Self:
        """Cones that have no length yet, turned against the moments M of the neurons at this place."""
        at = self.multipliers(self.vector)
        slopes = Majorant(self.cell, V, at).moments(M)
        turned = (
            -length * torch.nn.functional.normalize(slope[:, self.cell.n_outputs :], dim=1)
            for length, slope in zip((_CONE, _CONE, _FORM_CONE), slopes, strict=True)
        )
        given = (at.cone_plus, at.cone_minus, at.form_cones)
        plus, minus, forms = (torch.where(g.any(1, keepdim=True), g, new) for g, new in zip(given, turned, strict=True))
        return type(self).of(self.cell, replace(at, cone_plus=plus, cone_minus=minus, form_cones=forms))

    def with_pairs(self, V: Matrix, M: Tensor, per_row: int) -> Self:
        """Pairs chosen anew: those that matter stay, others come where <C, M> falls most, ``per_row`` for every row."""
        if not len(self.cell.free):
            return self
        at = self.multipliers(self.vector)
        majorant = Majorant(self.cell, V, at)
        everywhere = _everywhere(at.pairs)
        full = majorant.slopes(M, everywhere)
        units = _units(at.pairs, majorant.diagonal.sqrt())
        gains = [-slope * units[i] * units[j] for slope, (i, j) in zip(full, everywhere, strict=True)]
        return self._chosen(at, gains, everywhere, units, per_row * at.pairs.count)

    def _chosen(
        self, at: Multipliers, gains: list[Tensor], places: list[tuple[Tensor, Tensor]], units: Tensor, room: int
    ) -> Self:
        weights = [at.pairs.dense(kind)[i, j] for kind, (i, j) in enumerate(places)]
        for gain, weight, (i, j) in zip(gains, weights, places, strict=True):
            matters = weight > _NEGLIGIBLE * units[i] * units[j]
            gain[matters | ((weight > 0) & (gain > 0))] = math.inf
        ranked = torch.cat(gains)
        room = min(room, int((ranked > 0).sum()))
        least = float(torch.topk(ranked, room).values[-1]) if room else math.inf
        share = (_LATER_PAIRS if any(map(len, at.pairs.where)) else _NEW_PAIRS) / len(self.cell.free)
        where, values = [], []
        for gain, weight, (i, j) in zip(gains, weights, places, strict=True):
            taken = (gain >= least) & (gain > 0)
            first, second, old = i[taken], j[taken], weight[taken]
            where.append(first * self.pairs.count + second)
            values.append(torch.where(old > 0, old, share * units[first] * units[second]))
        pairs = replace(at.pairs, support=Support(self.pairs.count, tuple(where)), values=tuple(values))
        return type(self).of(self.cell, replace(at, pairs=pairs))


def _everywhere(pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
    """All pairs that are worth a weight: a_k a_k is a square, and a_k b_k of one row is zero."""
    p = pairs.count
    rows = torch.ones(p) if pairs.labels is None else torch.bincount(pairs.labels, minlength=p)
    below = torch.tril_indices(p, p, -1)
    first, second = torch.cartesian_prod(torch.arange(p), torch.arange(p)).T
    mixed = (first != second) | (rows[first] > 1)
    return [(below[0], below[1]), (below[0], below[1]), (first[mixed], second[mixed])]


def _units(pairs: Pairs, roots: Tensor) -> Tensor:
    """The roots of D, of clusters in units of their shares: a weight of k l in these units is N_ij of sqrt(D_i D_j)."""
    return roots if pairs.shares is None else pairs.down(roots) / pairs.down(pairs.shares).clamp(min=1e-100)


def _root(g: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """r with |r| r = g."""
    length = torch.linalg.vector_norm(g, dim=1, keepdim=True)
    return torch.where(length > 0, g / length.sqrt().clamp(min=1e-150), 0.0)


def _cone(r: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    return torch.linalg.vector_norm(r, dim=1, keepdim=True) * r
