"""A training problem as the data of a conic program, in Clarabel's form."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import clarabel
import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.losses import ConeRows, Epigraph
from bidual.operators import HasKernel, LiftedOperator
from bidual.problem import Problem

Rows = tuple[list[sparse.sparray | None], ndarray, list[Any]]


@dataclass(frozen=True, eq=False)
class GaugeCones:
    r"""beta * Omega(Z) = min <cost, u> over u in a product of cones, where Z.flatten() = scale * u[entries].

    Second-order: u_g = (t, Z_g) with |Z_g| <= t and cost t, one cone per group g of entries. Semidefinite:
    u_p = svec [[W_1, Z_p], [Z_p^T, W_2]] and cost 1/2 (tr W_1 + tr W_2), one cone per block; svec stacks the columns
    of the upper triangle and multiplies what is off the diagonal by sqrt(2).
    """

    cost: Float[ndarray, "u"]
    entries: Int[ndarray, "z"]
    scale: float
    cones: list[Any]


@dataclass(frozen=True, eq=False)
class ConicProgram:
    r"""min 1/2 <x, P x> + <q, x> subject to G x + s = h, s in the product of ``cones``.

    x = (u, f, a, b): the gauge's variable, the predictions with intercept, the loss's auxiliaries, the intercept. The
    first rows say A Z + 1 b^T - f = 0, so their multiplier is the gradient of the data term in f, the dual V.
    The lifted variable is measured in the unit ``z_unit`` and the objective in the unit ``cost_unit``.
    """

    P: sparse.csc_array
    q: ndarray
    G: sparse.csc_array
    h: ndarray
    cones: list[Any]
    gauge: GaugeCones
    z_unit: float
    cost_unit: float

    def lifted(self, x: ndarray) -> ndarray:
        """Z.flatten() from the primal variable."""
        return self.z_unit * self.gauge.scale * x[self.gauge.entries]

    def dual(self, multipliers: ndarray, size: int) -> ndarray:
        """V.flatten() from the multipliers."""
        return self.cost_unit * multipliers[:size]


def conic_program(problem: Problem, z_unit: float = 1.0, cost_unit: float = 1.0) -> ConicProgram:
    """Write the problem as a conic program."""
    n, c = problem.operator.output_shape
    price = problem.beta * z_unit / cost_unit
    gauge = gauge_cones(problem.gauge.cone(c), problem.operator.block_shape, price)  # type: ignore[attr-defined]
    data = problem.datafit
    epigraph, weights = data.loss.epigraph(data.targets), _numpy(data.weights) / cost_unit
    quadratic, linear = _loss_cost(epigraph, weights)
    n_aux, n_free = epigraph.linear_auxiliary.numel(), c if data.intercept else 0
    coupling = sparse.csr_array(lifted_matrix(problem.operator) * (z_unit * gauge.scale))
    coupling = _place_columns(coupling, gauge.entries, len(gauge.cost))
    ones = sparse.csr_array(np.tile(np.eye(c), (n, 1))) if data.intercept else sparse.csr_array((n * c, 0))
    blocks: list[Rows] = [
        ([coupling, -sparse.eye_array(n * c), None, ones], np.zeros(n * c), [clarabel.ZeroConeT(n * c)]),
        ([-sparse.eye_array(len(gauge.cost)), None, None, None], np.zeros(len(gauge.cost)), gauge.cones),
        *(_loss_rows(rows) for rows in epigraph.constraints),
    ]
    widths = (len(gauge.cost), n * c, n_aux, n_free)
    return ConicProgram(
        P=sparse.csc_array(sparse.diags_array(np.concatenate([np.zeros(widths[0]), quadratic, np.zeros(n_free)]))),
        q=np.concatenate([gauge.cost, linear, np.zeros(n_free)]),
        G=sparse.csc_array(sparse.vstack([_row_of(parts, widths) for parts, _, _ in blocks])),
        h=np.concatenate([offset for _, offset, _ in blocks]),
        cones=[cone for _, _, cones in blocks for cone in cones],
        gauge=gauge,
        z_unit=z_unit,
        cost_unit=cost_unit,
    )


def gauge_cones(kind: str, shape: tuple[int, int, int], price: float) -> GaugeCones:
    """The cones of a gauge whose ``cone`` is ``kind`` on blocks of the given shape."""
    p, a, b = shape
    if kind == "semidefinite" and min(a, b) > 1:
        return _semidefinite(p, a, b, price)
    index = np.arange(p * a * b).reshape(p, a, b)
    groups = index.transpose(0, 2, 1).reshape(p * b, a) if kind == "second_order_per_column" else index.reshape(p, a * b)
    return _second_order(groups, price)


def cone_entries(kind: str, shape: tuple[int, int, int]) -> int:
    """How many entries the cones of a gauge add to the matrix that is factorised."""
    p, a, b = shape
    side = (a + b) * (a + b + 1) // 2
    return p * side * (side + 1) // 2 if kind == "semidefinite" and min(a, b) > 1 else 3 * p * a * b


def lifted_matrix(operator: LiftedOperator) -> sparse.sparray:
    """A from Z.flatten() to predictions.flatten(), as design kron I_c where outputs do not mix."""
    if isinstance(operator, HasKernel):
        return sparse.kron(sparse.csr_array(_numpy(operator.design())), sparse.eye_array(operator.output_shape[1]))
    return sparse.csr_array(_numpy(operator.dense()))


def _second_order(groups: Int[ndarray, "g k"], price: float) -> GaugeCones:
    count, size = groups.shape
    cost = np.zeros((count, 1 + size))
    cost[:, 0] = price
    entries = np.empty(groups.size, dtype=np.int64)
    entries[groups] = np.arange(cost.size).reshape(cost.shape)[:, 1:]
    return GaugeCones(cost.ravel(), entries, 1.0, [clarabel.SecondOrderConeT(1 + size)] * count)


def _semidefinite(p: int, a: int, b: int, price: float) -> GaugeCones:
    side = a + b
    triangle = side * (side + 1) // 2
    diagonal = np.arange(1, side + 1).cumsum() - 1
    cost = np.zeros((p, triangle))
    cost[:, diagonal] = 0.5 * price
    column = np.arange(a, side)
    entries = (column * (column + 1) // 2)[None, :] + np.arange(a)[:, None]  # entry (i, j), i < j, of the triangle
    entries = np.arange(p)[:, None, None] * triangle + entries
    return GaugeCones(cost.ravel(), entries.ravel(), sqrt(0.5), [clarabel.PSDTriangleConeT(side)] * p)


def _loss_cost(epigraph: Epigraph, weights: Float[ndarray, "n 1"]) -> tuple[ndarray, ndarray]:
    """The diagonal of P and the vector q on the predictions and the auxiliaries, weighted by sample."""
    on_f, on_a = _numpy(epigraph.linear_prediction), _numpy(epigraph.linear_auxiliary)
    square_f = np.broadcast_to(epigraph.quadratic_prediction, on_f.shape)
    square_a = np.broadcast_to(_numpy(epigraph.quadratic_auxiliary), on_a.shape)
    quadratic, linear = (
        np.concatenate([(weights * part).ravel() for part in parts]) for parts in ((square_f, square_a), (on_f, on_a))
    )
    return quadratic, linear


def _loss_rows(rows: ConeRows) -> Rows:
    """s = F_i f_i + A_i a_i + h_i for every sample, sample by sample."""
    offset = _numpy(rows.offset)
    n, r = offset.shape
    cones = [clarabel.ExponentialConeT()] * n if rows.cone == "exponential" else [clarabel.NonnegativeConeT(n * r)]
    on_f, on_a = _block_diagonal(_numpy(rows.on_prediction)), _block_diagonal(_numpy(rows.on_auxiliary))
    return [None, -on_f, -on_a, None], offset.ravel(), cones


def _block_diagonal(blocks: Float[ndarray, "n r k"]) -> sparse.csr_array:
    n, r, k = blocks.shape
    i, row, column = np.nonzero(blocks)
    return sparse.csr_array((blocks[i, row, column], (i * r + row, i * k + column)), shape=(n * r, n * k))


def _place_columns(matrix: sparse.csr_array, columns: Int[ndarray, "k"], width: int) -> sparse.csr_array:
    """The matrix with its j-th column moved to ``columns[j]`` of a wider one."""
    return sparse.csr_array((matrix.data, columns[matrix.indices], matrix.indptr), shape=(matrix.shape[0], width))


def _row_of(parts: list[sparse.sparray | None], widths: tuple[int, ...]) -> sparse.csr_array:
    height = next(part.shape[0] for part in parts if part is not None)
    filled: Iterator[sparse.sparray] = (
        sparse.csr_array((height, width)) if part is None else part for part, width in zip(parts, widths, strict=True)
    )
    return sparse.csr_array(sparse.hstack(list(filled)))


def _numpy(tensor: Tensor) -> ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()
