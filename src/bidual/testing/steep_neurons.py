"""The steepest neuron without an oracle: enumeration of patterns, closed forms, and a long random search.

Nothing here uses ``bidual.polar``. Every value but a planted one is attained by a direction that was evaluated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bidual.testing.tools import normal

Features = Callable[[Tensor, Tensor], Tensor]  # samples (n, d) and neurons (q, k) to outputs of neurons (n, q)
_MOST_ROWS, _MOST_FEATURES = 8, 4  # of data whose patterns are enumerated


def relu_features(X: Tensor, U: Tensor) -> Tensor:
    """(X u)_+ of every neuron."""
    return (X @ U.T).clamp(min=0)


@dataclass(frozen=True, eq=False)
class Question:
    """max over |u|_C <= 1 of |V^T f_u(X)|_R*."""

    X: Tensor
    V: Tensor
    hidden: float = 2.0  # the order of the norm C of a neuron
    output: float = 2.0  # the order of the norm R* of V^T f_u(X)
    features: Features = relu_features  # f, positively homogeneous of degree one in u
    size: int = 1  # numbers of a neuron per feature of X
    feasible: Callable[[Tensor], Tensor] = lambda U: U  # drops from neurons (q, k) what a neuron may not have

    def values(self, U: Tensor) -> Tensor:
        """|V^T f_u(X)| / |u| of every neuron, 0 for the zero neuron."""
        length = torch.linalg.vector_norm(U, self.hidden, dim=1)
        value = torch.linalg.vector_norm(self.features(self.X, U).T @ self.V, self.output, dim=1)
        return torch.where(length > 0, value / length.clamp(min=1e-300), 0.0)

    @cached_property
    def best(self) -> float:
        """The largest value that enumeration and search attain: the maximum itself where ``enumerable``."""
        tried = self._drawn()
        if self.enumerable:
            tried = torch.cat([tried, self._tops_of_patterns() if self.hidden == 2 else self._corners()])
        values = self.values(tried)
        return max(float(values.max()), float(self.values(self._climbed(tried[values.argsort()[-20:]])).max()))

    @property
    def enumerable(self) -> bool:
        n, d = self.X.shape
        return self.features is relu_features and n <= _MOST_ROWS and (d <= _MOST_FEATURES or self.hidden == 2)

    def _drawn(self, count: int = 400) -> Tensor:
        generator, d = torch.Generator().manual_seed(0), self.X.shape[1]
        drawn = normal((count, d * self.size), generator)
        drawn[: count // 2] *= normal((count // 2, d * self.size), generator).abs() > 0.7
        return self.feasible(drawn)

    def _climbed(self, U: Tensor, rounds: int = 60, tries: int = 12) -> Tensor:
        """Random steps of falling length, of which the steepest is taken."""
        generator, width = torch.Generator().manual_seed(1), U.shape[1]
        U = normalize(U, eps=1e-300)
        for k in range(rounds):
            steps = 0.5 * 0.85**k * normal((len(U), tries, width), generator)
            steps[:, 0] = 0
            moved = self.feasible((U[:, None] + steps).flatten(0, 1))
            values = self.values(moved).reshape(len(U), tries)
            U = moved.reshape(len(U), tries, width)[torch.arange(len(U)), values.argmax(1)]
            U = normalize(U, eps=1e-300)
        return U

    def _tops_of_patterns(self) -> Tensor:
        """Top eigenvectors of the form of every pattern, on every flat where some rows vanish, with both signs.

        On the cell of a pattern the objective is a form for every functional g of the outputs, and its maximum on a
        cell, or on a face of it, is the top eigenvector on that flat or lies on a smaller face.
        """
        basis = torch.linalg.svd(self.X, full_matrices=False)
        axes = basis.Vh[1e-10 * basis.S[0] < basis.S].T
        X, (n, r) = self.X @ axes, (len(self.X), axes.shape[1])
        patterns = torch.tensor(list(product((0.0, 1.0), repeat=n)), dtype=X.dtype)
        flats = [list(rows) for k in range(r) for rows in combinations(range(n), k)]
        off = torch.stack([torch.eye(r, dtype=X.dtype) - torch.linalg.pinv(X[rows]) @ X[rows] for rows in flats])
        tops = []
        for B in self._functionals():
            slopes = torch.einsum("pn,nc,nr->pcr", patterns, B, X)[:, None] @ off
            tops.append(torch.linalg.eigh(slopes.mT @ slopes).eigenvectors[..., -1].reshape(-1, r) @ axes.T)
        return torch.cat([*tops, *(-top for top in tops)])

    def _functionals(self) -> list[Tensor]:
        """V itself, or V g for the corners g of the outputs' ball."""
        if self.output == 2:
            return [self.V]
        if self.output == inf:
            return list(self.V.split(1, 1))
        signs = torch.tensor(list(product((1.0, -1.0), repeat=self.V.shape[1])), dtype=self.V.dtype)
        return list((self.V @ signs.T).split(1, 1))

    def _corners(self) -> Tensor:
        """Rays on which d - 1 of the rows and of the creases of the norm vanish: the objective is convex between."""
        d = self.X.shape[1]
        eye = torch.eye(d, dtype=self.X.dtype)
        pairs = [eye[j] + sign * eye[k] for j, k in combinations(range(d), 2) for sign in (1, -1)]
        creases = eye if self.hidden == 1 or d == 1 else torch.stack(pairs)
        planes = torch.cat([self.X, creases])
        rays = [torch.linalg.svd(planes[list(some)]).Vh[-1:] for some in combinations(range(len(planes)), d - 1)]
        return torch.cat([*rays, *(-ray for ray in rays)]) if d > 1 else torch.cat([eye, -eye])


def random_questions(like: Question, generator: torch.Generator, c: int) -> Iterator[Question]:
    """Data of rank one to three, with ties, opposite rows, zero rows and dependent features."""
    X = normal((5, 3), generator)
    ties = torch.cat([X[:3], X[:1], -X[1:2], 2 * X[:1], torch.zeros(1, 3, dtype=X.dtype)])
    low_rank = normal((6, 2), generator) @ normal((2, 4), generator)
    for samples in (X, normal((7, 2), generator), ties, low_rank, X[:1], normal((4, 1), generator)):
        yield replace(like, X=samples, V=normal((len(samples), c), generator))
    yield replace(like, X=X, V=normal((5, c), generator).abs())


def planted_questions(like: Question, generator: torch.Generator, c: int) -> Iterator[tuple[str, Question, float]]:
    """Data whose steepest ReLU neuron is known in closed form."""
    Q, scales = torch.linalg.qr(normal((6, 4), generator)).Q.T, 0.5 + torch.rand(4, 1, generator=generator).double()
    B = normal((4, c), generator)
    if like.hidden != 2:
        yield from _planted_on_axes(like, scales, B)
        return
    X, column = scales * Q, B[:, :1]
    halves = [float((scales * part).square().sum()) ** 0.5 for part in (column.clamp(min=0), column.clamp(max=0))]
    yield "orthogonal rows, one output", replace(like, X=X, V=column), max(halves)
    if like.output != 2:
        return
    positive = torch.linalg.matrix_norm(scales * B.abs(), 2)
    yield "orthogonal rows, V >= 0", replace(like, X=X, V=B.abs()), float(positive)
    t, a = normal((4, 1), generator), normal((1, 5), generator)
    line = max(float(torch.linalg.vector_norm((sign * t).clamp(min=0).T @ B)) for sign in (1, -1))
    yield "rank one", replace(like, X=t @ a, V=B), line * float(torch.linalg.vector_norm(a))
    A = normal((4, 3), generator)  # (x u)_+ - (-x u)_+ = x u
    linear = float(torch.linalg.matrix_norm(B.T @ A, 2))
    yield "mirrored rows", replace(like, X=torch.cat([A, -A]), V=torch.cat([B, -B])), linear


def _planted_on_axes(like: Question, scales: Tensor, B: Tensor) -> Iterator[tuple[str, Question, float]]:
    """X = diag(s): under l1 a corner e_j is steepest, under linf a sign vector is, which adds up some rows of s V."""
    rows, question = scales * B, replace(like, X=torch.diag(scales[:, 0]), V=B)
    some = torch.tensor(list(product((0.0, 1.0), repeat=len(rows))), dtype=B.dtype) @ rows
    sums = rows if like.hidden == 1 else some
    yield "scaled axes", question, float(torch.linalg.vector_norm(sums, like.output, dim=1).max())
