"""A training problem as the data of a conic program, in Clarabel's form."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import clarabel
import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.gauges import Conic
from bidual.losses import ConeRows, Epigraph
from bidual.numerics.sparse import is_sparse, to_scipy
from bidual.operators import HasKernel, LiftedOperator
from bidual.problems.problem import Problem
from bidual.types import as_protocol


class ConstraintRows(NamedTuple):
    """Some rows of G, by the parts of x they act on, with their share of h and their cones."""

    parts: list[sparse.sparray | None]
    offset: Float[ndarray, " r"]
    cones: list[Any]


@dataclass(frozen=True, eq=False)
class GaugeCones:
    r"""Omega(Z) = min <cost, u> over u with image @ u in a product of cones, where Z.flatten() = scale * u[entries].

    Second-order: u_g = (t, Z_g) with |Z_g| <= t and cost t, one cone per group g of entries. Largest: the same with
    |Z_g|_inf <= t, so the image is (t - Z_g, t + Z_g) and the cone non-negative. Semidefinite:
    u_p = svec [[W_1, Z_p], [Z_p^T, W_2]] and cost 1/2 (tr W_1 + tr W_2), one cone per block; svec stacks the columns
    of the upper triangle and multiplies entries off the diagonal by sqrt(2).
    """

    cost: Float[ndarray, " u"]
    entries: Int[ndarray, " z"]
    scale: float
    cones: list[Any]
    image: sparse.sparray | None = None  # the identity

    def rows(self) -> ConstraintRows:
        """image @ u in the cones."""
        image = sparse.eye_array(len(self.cost)) if self.image is None else self.image
        return ConstraintRows([-image, None, None, None], np.zeros(image.shape[0]), self.cones)


@dataclass(frozen=True)
class Units:
    """The units of the numbers of a conic program; interior-point methods are sensitive to them."""

    lifted: float
    predictions: float
    cost: float


@dataclass(frozen=True, eq=False)
class ClarabelProgram:
    r"""min 1/2 <x, P x> + <q, x> subject to G x + s = h, s in the product of ``cones``.

    x = (u, f, a, b): the gauge's variable, the predictions with intercept, the loss's auxiliaries, the intercept. The
    first rows are A Z + 1 b^T - f = 0, so their multiplier is the gradient of the data term in f, the dual V.
    """

    P: sparse.csc_array
    q: Float[ndarray, " x"]
    G: sparse.csc_array
    h: Float[ndarray, " s"]
    cones: list[Any]
    gauge: GaugeCones
    units: Units

    def lifted(self, x: Float[ndarray, " x"]) -> Float[ndarray, " z"]:
        """Z.flatten() from the primal variable."""
        return self.units.lifted * self.gauge.scale * x[self.gauge.entries]

    def dual(self, multipliers: Float[ndarray, " s"], size: int) -> Float[ndarray, " v"]:
        """V.flatten() from the multipliers."""
        return self.units.cost / self.units.predictions * multipliers[:size]


def clarabel_program(problem: Problem, balance: float, halfspaces: sparse.sparray | None = None) -> ClarabelProgram:
    r"""Write the problem as a conic program in which the gauge costs 1 per unit.

    With ``balance`` 0 the entries of A are of size 1 and the loss is expensive (like 1 / beta); with ``balance`` 1
    the loss costs 1 and the entries of A are large; in between, geometrically. ``halfspaces`` is H (k, z) of further
    constraints H Z.flatten() >= 0.
    """
    data, A = problem.datafit, sparse.csr_array(lifted_matrix(problem.operator))
    epigraph = data.loss.epigraph(data.targets)
    units = _units(problem, epigraph, A, balance)
    gauge = gauge_cones(
        as_protocol(problem.gauge, Conic).cone(problem.operator.block_shape[2]), problem.operator.block_shape
    )
    quadratic, linear = _loss_cost(epigraph, _numpy(data.weights), units)
    blocks = [
        _coupling_rows(A, gauge, data.intercept, data.targets.shape, units),
        gauge.rows(),
        *(_loss_rows(rows, units) for rows in epigraph.constraints),
        *([_halfspace_rows(sparse.csr_array(halfspaces), gauge)] if halfspaces is not None and halfspaces.nnz else []),
    ]
    free = np.zeros(data.targets.shape[1] if data.intercept else 0)
    widths = (len(gauge.cost), data.targets.numel(), epigraph.linear_auxiliary.numel(), len(free))
    return ClarabelProgram(
        P=sparse.csc_array(sparse.diags_array(np.concatenate([np.zeros_like(gauge.cost), quadratic, free]))),
        q=np.concatenate([gauge.cost, linear, free]),
        G=sparse.csc_array(sparse.vstack([_joined(rows.parts, widths) for rows in blocks])),
        h=np.concatenate([rows.offset for rows in blocks]),
        cones=[cone for rows in blocks for cone in rows.cones],
        gauge=gauge,
        units=units,
    )


def gauge_cones(kind: str, shape: tuple[int, int, int]) -> GaugeCones:
    """The cones of a gauge whose ``cone`` is ``kind`` on blocks of the given shape."""
    p, a, b = shape
    if _is_matrix_cone(kind, shape):
        return _semidefinite(p, a, b)
    index = np.arange(p * a * b).reshape(p, a, b)
    groups = {"": index.reshape(p, a * b), "row": index.reshape(p * a, b), "entry": index.reshape(-1, 1)}
    groups["column"] = index.transpose(0, 2, 1).reshape(p * b, a)
    ball, _, which = kind.partition("_per_")
    return _largest(groups[which]) if ball == "largest" else _second_order(groups[which])


def conic_entries(problem: Problem) -> int:
    r"""About how many numbers an interior-point step on the problem stores.

    Eliminating Z fills the columns of A, coupled over the outputs if the gauge couples them, and leaves A A^T, which
    is full; every semidefinite cone adds the square of its triangle.
    """
    (n, c), (p, a, b) = problem.operator.output_shape, problem.operator.block_shape
    kind = as_protocol(problem.gauge, Conic).cone(b)
    apart = kind.endswith(("_per_column", "_per_entry")) and isinstance(problem.operator, HasKernel)
    rows = n if apart else n * c
    triangle = (a + b) * (a + b + 1) // 2
    cones = p * triangle * (triangle + 1) // 2 if _is_matrix_cone(kind, (p, a, b)) else 0
    return p * a * b * rows + n * c * rows // 2 + cones


def lifted_matrix(operator: LiftedOperator) -> sparse.sparray:
    """A from Z.flatten() to predictions.flatten(), as design kron I_c where outputs do not mix."""
    if isinstance(operator, HasKernel):
        B = operator.design()
        entries = to_scipy(B.to(torch.float64)) if is_sparse(B) else sparse.csr_array(_numpy(B))
        return sparse.kron(entries, sparse.eye_array(operator.output_shape[1]))
    return sparse.csr_array(_numpy(operator.dense()))


def _is_matrix_cone(kind: str, shape: tuple[int, int, int]) -> bool:
    """A nuclear norm of blocks with one row or column is Euclidean."""
    return kind == "semidefinite" and min(shape[1:]) > 1


def _units(problem: Problem, epigraph: Epigraph, A: sparse.csr_array, balance: float) -> Units:
    exponential = any(rows.cone == "exponential" for rows in epigraph.constraints)  # these allow no change of unit
    predictions = 1.0 if exponential else float(problem.datafit.targets.abs().max()) or 1.0
    entry = float(np.linalg.norm(A.data)) / sqrt(max(A.nnz, 1)) or 1.0
    costs = _loss_cost(epigraph, _numpy(problem.datafit.weights), Units(1.0, predictions, 1.0))
    price = max(float(np.abs(cost).max()) for cost in costs)
    lifted = (predictions / entry) ** (1 - balance) * (price / problem.beta) ** balance
    return Units(lifted, predictions, problem.beta * lifted)


def _second_order(groups: Int[ndarray, "g k"]) -> GaugeCones:
    count, size = groups.shape
    cost = np.zeros((count, 1 + size))
    cost[:, 0] = 1
    entries = np.empty(groups.size, dtype=np.int64)
    entries[groups] = np.arange(cost.size).reshape(cost.shape)[:, 1:]
    return GaugeCones(cost.ravel(), entries, 1.0, [clarabel.SecondOrderConeT(1 + size)] * count)


def _largest(groups: Int[ndarray, "g k"]) -> GaugeCones:
    """(t - z_k, t + z_k) >= 0 for every entry z_k of a group."""
    plain, (count, size) = _second_order(groups), groups.shape
    t = sparse.csr_array(np.ones((size, 1)))
    box = sparse.vstack([sparse.hstack([t, sign * sparse.eye_array(size)]) for sign in (-1, 1)])
    image = sparse.kron(sparse.eye_array(count), box)
    cones = [clarabel.NonnegativeConeT(2 * groups.size)]
    return GaugeCones(plain.cost, plain.entries, 1.0, cones, sparse.csr_array(image))


def _semidefinite(p: int, a: int, b: int) -> GaugeCones:
    side = a + b
    triangle = side * (side + 1) // 2
    cost = np.zeros((p, triangle))
    cost[:, np.arange(1, side + 1).cumsum() - 1] = 0.5  # the diagonal
    column = np.arange(a, side)
    above = (column * (column + 1) // 2)[None, :] + np.arange(a)[:, None]  # where entry (i, j), i < j, is stacked
    entries = np.arange(p)[:, None, None] * triangle + above
    return GaugeCones(cost.ravel(), entries.ravel(), sqrt(0.5), [clarabel.PSDTriangleConeT(side)] * p)


def _loss_cost(epigraph: Epigraph, weights: Float[ndarray, "n 1"], units: Units) -> tuple[ndarray, ndarray]:
    """The diagonal of P and the vector q on the predictions and the auxiliaries, weighted by sample."""
    on_f, on_a = _numpy(epigraph.linear_prediction), _numpy(epigraph.linear_auxiliary)
    square_f = np.broadcast_to(epigraph.quadratic_prediction, on_f.shape)
    square_a = np.broadcast_to(_numpy(epigraph.quadratic_auxiliary), on_a.shape)
    weights = weights * units.predictions / units.cost
    quadratic = np.concatenate([(weights * units.predictions * part).ravel() for part in (square_f, square_a)])
    return quadratic, np.concatenate([(weights * part).ravel() for part in (on_f, on_a)])


def _coupling_rows(
    A: sparse.csr_array, gauge: GaugeCones, intercept: bool, shape: tuple[int, ...], units: Units
) -> ConstraintRows:
    """A Z + 1 b^T - f = 0."""
    n, c = shape
    values = A.data * (gauge.scale * units.lifted / units.predictions)
    on_u = sparse.csr_array((values, gauge.entries[A.indices], A.indptr), shape=(n * c, len(gauge.cost)))
    on_b = sparse.csr_array(np.tile(np.eye(c), (n, 1))) if intercept else None
    return ConstraintRows([on_u, -sparse.eye_array(n * c), None, on_b], np.zeros(n * c), [clarabel.ZeroConeT(n * c)])


def _halfspace_rows(H: sparse.csr_array, gauge: GaugeCones) -> ConstraintRows:
    """H Z >= 0; the unit of Z does not matter."""
    on_u = sparse.csr_array((-H.data, gauge.entries[H.indices], H.indptr), shape=(H.shape[0], len(gauge.cost)))
    return ConstraintRows([on_u, None, None, None], np.zeros(H.shape[0]), [clarabel.NonnegativeConeT(H.shape[0])])


def _loss_rows(rows: ConeRows, units: Units) -> ConstraintRows:
    """s = F_i f_i + A_i a_i + h_i for every sample, sample by sample."""
    offset = _numpy(rows.offset) / units.predictions
    n, r = offset.shape
    cones = [clarabel.ExponentialConeT()] * n if rows.cone == "exponential" else [clarabel.NonnegativeConeT(n * r)]
    on_f, on_a = _block_diagonal(_numpy(rows.on_prediction)), _block_diagonal(_numpy(rows.on_auxiliary))
    return ConstraintRows([None, -on_f, -on_a, None], offset.ravel(), cones)


def _block_diagonal(blocks: Float[ndarray, "n r k"]) -> sparse.csr_array:
    n, r, k = blocks.shape
    i, row, column = np.nonzero(blocks)
    return sparse.csr_array((blocks[i, row, column], (i * r + row, i * k + column)), shape=(n * r, n * k))


def _joined(parts: list[sparse.sparray | None], widths: tuple[int, ...]) -> sparse.sparray:
    """The parts side by side, zeros for None."""
    height = next(part.shape[0] for part in parts if part is not None)
    pairs = zip(parts, widths, strict=True)
    return sparse.hstack([sparse.csr_array((height, width)) if part is None else part for part, width in pairs])


def _numpy(tensor: Tensor) -> ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()
