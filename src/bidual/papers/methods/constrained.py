"""The exact convex program of three-layer parallel networks with one output, for given gates (PR eq. 21)."""

import math
from dataclasses import dataclass
from time import monotonic
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import sparse
from torch import Tensor, nn

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.gauges import Group
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import TINY, gamma, rounded_up
from bidual.operators import GatedOperator
from bidual.operators.stacked import GatedSubNetworkOperator
from bidual.papers.methods.cone_projection import Cones
from bidual.papers.methods.decoding import SubNetworks, encoded
from bidual.papers.methods.gate_cones import GateCones
from bidual.patterns.sampling import first_of_each
from bidual.polar.subnetworks.first_layer import own_rows
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import Problem
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.solvers.conic.interior_point import attempts, constrained_answer
from bidual.types import Blocks, Matrix

NORMS = ("path", "weight_decay")
_TOL, _GOOD = 1e-12, 1e-9  # the tolerance of Clarabel, and the gap with which no other scaling is tried
_DUST = (1e-3, 1e-5, 1e-7)  # sub-networks that much shorter than the longest are dropped ...
_COARSENING = 1e-9  # ... if the objective rises by no more than this, relatively
_MOST_CHECKED = 50_000  # inequalities that are tested for redundancy
_BYTES = 100  # per entry of the constraint matrix, in Clarabel's copies and its factor


@dataclass(frozen=True, eq=False)
class ConstrainedSolution:
    """The optimum over the gates, as real sub-networks.

    Attributes:
        networks: z with output weight +, z' with output weight -, each of path norm |z|.
        problem: the program in (z; z') without its cones, in the given norm.
        certificate: over the given gates, with all inequalities; ``certificate.point`` satisfies them, in real
            arithmetic.
        multipliers: of the inequalities; they prove that the dual point is feasible for the cones.
        inequalities: H (k, z) of H (z; z') >= 0, the rows of the multipliers.
        seconds: of the whole solution.
    """

    networks: SubNetworks
    problem: Problem
    certificate: Certificate
    multipliers: Float[Tensor, " k"]
    inequalities: sparse.csr_array
    seconds: float

    @property
    def objective(self) -> float:
        return self.certificate.primal

    def recheck(self) -> bool:
        """Recompute the certificate from the point, the dual point and the multipliers alone."""
        polar = _LiftedPolar.of(self.problem, self.inequalities, self.multipliers)
        return self.certificate.holds(self.problem, polar, polar.rounding)


def solve_constrained(
    gates: SubNetworkGates,
    X: Float[Tensor, "n d"],
    datafit: Datafit,
    beta: float,
    *,
    norm: str = "path",
    time_limit: float | None = None,
) -> ConstrainedSolution:
    r"""min F(sum_k D_2k sum_j D_1kj X (z_kj - z'_kj)) + beta (|z| + |z'|), z and z' in the cones of the gates.

    Args:
        norm: "path" is sum_k |z_k|_F (PR eq. 21, for m_2 = 1). "weight_decay" is sum_k sum_j |z_kj|: sub-networks with
            |W_1|_F <= 1 and |w_2| <= 1 make every z with sum_j |z_j| <= 1, as sum_j |w_2j| |w_1j| <= |w_2| |W_1|_F. It
            is also the limit of the path norm at beta sqrt(m_1) for many units.
        time_limit: in seconds; the best point so far is returned.
    """
    began = monotonic()
    _check(gates, X, datafit, norm)
    gates = _distinct(gates, X)
    _check_memory(gates, X)
    cones = GateCones.of(gates, X)
    D = cones.on * (0.5 + 0.5 * cones.outer)[:, None]
    both = torch.cat([D, -D])
    operator = GatedSubNetworkOperator(X, both, 1) if norm == "path" else GatedOperator(X, both.flatten(0, 1), 1)
    problem = Problem(operator, datafit, Group(), beta)
    H = _inequalities(cones, gates)
    best: ConstrainedSolution | None = None
    for attempt in attempts(problem):
        left = None if time_limit is None else time_limit - (monotonic() - began)
        if best is not None and (best.certificate.relative_gap <= _GOOD or (left is not None and left <= 0)):
            break
        Z, V, multipliers = constrained_answer(problem, H, attempt, _TOL, left)
        found = _judged(problem, gates, cones, Z, V, H, multipliers, began)
        if best is None or found.certificate.relative_gap < best.certificate.relative_gap:
            best = found
    assert best is not None
    return best


def _check(gates: SubNetworkGates, X: Tensor, datafit: Datafit, norm: str) -> None:
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}.")
    if datafit.targets.shape[1] != 1:
        raise ValueError(
            f"the program PR (21) is for one output, got {datafit.targets.shape[1]}. Train one output at a time."
        )
    if X.dtype != torch.float64 or len(X) != len(datafit.targets):
        raise ValueError(
            f"X must be float64 with one row per target ({len(datafit.targets)}), got {X.dtype} of {len(X)} rows."
        )


def _check_memory(gates: SubNetworkGates, X: Tensor) -> None:
    """Before matrices are made: A and both layers of H have at most n numbers per variable each."""
    variables, there = 2 * gates.weights.numel(), available_bytes(torch.device("cpu"))
    need = 3 * variables * len(X) * _BYTES
    if need > there:
        raise ValueError(
            f"{len(gates)} sub-networks make a program of {variables:,} variables and up to "
            f"{2 * len(gates) * (gates.width + 1) * len(X):,} inequalities, which needs about {human_bytes(need)}, and "
            f"{human_bytes(there)} are free. Use fewer sub-networks, or GatedParallel without the inequalities."
        )


def _distinct(gates: SubNetworkGates, X: Tensor) -> SubNetworkGates:
    """Gates of distinct patterns, without those for which every sub-network is zero; the first one if none is left."""
    first, second = gates.activity(X)
    codes = torch.cat([first.flatten(1), second, gates.signs > 0], 1)
    alive = (first & second[:, None] & X.any(1)).flatten(1).any(1)
    kept = first_of_each(codes)
    kept = kept[alive[kept]]
    return gates.to(X)[kept if len(kept) else torch.tensor([0])]


def _inequalities(cones: GateCones, gates: SubNetworkGates) -> sparse.csr_array:
    """Unit rows of both layers, for z and for z': facets of the first layer's cones, and rows of the second layer that
    the first does not imply, as it does on samples where all active units have one sign."""
    (k, m), X = cones.interior.shape[:2], cones.X
    patterns, which = torch.unique(cones.on.reshape(k * m, -1) > 0, dim=0, return_inverse=True)
    facets = _facets(X, patterns)[which].cpu() * gates.signs.cpu().reshape(k * m, 1, 1)  # of w = s z
    unit, row = facets.any(2).nonzero(as_tuple=True)
    inner = _rows(facets[unit, row], unit, k * m)
    positive, negative = ((cones.on * (sign * gates.signs > 0)[:, :, None]).any(1) for sign in (1, -1))
    which, sample = (positive & negative).nonzero(as_tuple=True)
    normals = (cones.outer[which, sample][:, None] * cones.on[which, :, sample])[:, :, None] * X[sample][:, None]
    length = torch.linalg.vector_norm(normals, dim=(1, 2), keepdim=True)
    outer = _rows((normals / torch.where(length > 0, length, 1.0)).flatten(1).cpu(), which.cpu(), k)
    half = sparse.vstack([inner, outer])
    return sparse.csr_array(sparse.block_diag([half, half]))


def _facets(X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"]) -> Float[Tensor, "p f d"]:
    """Unit normals of the cones (2 D - I) X w >= 0, without redundant ones unless there are too many to test, or facets
    cannot be separated. They are rows of X, with entries rounded once, and not computed facets."""
    length = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    signed = (2 * patterns.to(X) - 1)[:, :, None] * (X / torch.where(length > 0, length, 1.0))
    if patterns.numel() > _MOST_CHECKED:
        return signed
    facets = Cones.of(X, patterns).rows.cpu().numpy()
    found = [own_rows(*pair) for pair in zip(facets, signed.cpu().numpy(), strict=True)]
    return nn.utils.rnn.pad_sequence([torch.from_numpy(rows) for rows in found], batch_first=True).to(X)


def _rows(normals: Float[Tensor, "r b"], block: Tensor, blocks: int) -> sparse.csr_array:
    """A sparse matrix with one normal per row, in the columns of its block."""
    r, b = normals.shape
    columns = block.numpy()[:, None] * b + np.arange(b)
    pointers = b * np.arange(r + 1)
    rows = sparse.csr_array((normals.numpy().ravel(), columns.ravel(), pointers), shape=(r, blocks * b))
    rows.eliminate_zeros()
    return rows


@dataclass(frozen=True, eq=False)
class _LiftedPolar:
    r"""max of <-A* V, w> over the w of norm one in the cones is at most |-A* V + H^T l|° for every l >= 0.

    Rows of H are those of the cones times positive numbers, with entries that are rounded once. A term of H^T l goes
    through as many operations as its column has numbers, and two more, and so H^T l is off by gamma times |H|^T l; the
    difference is off by a unit of itself.
    """

    problem: Problem
    lift: Blocks
    rounding: float

    @classmethod
    def of(cls, problem: Problem, H: sparse.csr_array, multipliers: Tensor) -> Self:
        numbers, count = multipliers.clamp(min=0).cpu().numpy(), int(np.diff(H.tocsc().indptr).max(initial=0))
        lift, size = (
            torch.from_numpy(G.T @ numbers).to(multipliers).reshape(problem.operator.block_shape) for G in (H, abs(H))
        )
        used = numbers[np.diff(H.indptr) > 0]  # a zero row of X has no inequality
        rounding = gamma(count + 8) * problem.gauge.polar(size).upper + TINY * H.nnz * (1 + used.max(initial=0.0))
        return cls(problem, lift, float(rounding))

    def __call__(self, V: Matrix) -> float:
        upper = self.problem.gauge.polar(self.lift - self.problem.operator.adjoint(V)).upper
        return rounded_up(upper * (1 + gamma(4)) + self.rounding)


def _judged(
    problem: Problem,
    gates: SubNetworkGates,
    cones: GateCones,
    Z: Tensor,
    V: Matrix,
    H: sparse.csr_array,
    multipliers: Tensor,
    began: float,
) -> ConstrainedSolution:
    """The point moved into its cones and without dust, with its certificate."""
    halves = Z.reshape(2, *cones.interior.shape)
    z = _without_dust(problem, torch.cat([cones.moved_inside(half) for half in halves]))
    point = z.reshape(problem.operator.block_shape)
    certificate = judge(problem, point, V, _LiftedPolar.of(problem, H, multipliers), Scope.BLOCKS)
    side = torch.cat([z.new_ones(len(cones)), -z.new_ones(len(cones))])
    networks = encoded(z, gates.signs.to(z).repeat(2, 1), side, torch.zeros(len(z), dtype=torch.long), 1)
    scale = _scale(certificate.dual_point, problem.datafit.into_domain(V))
    return ConstrainedSolution(networks, problem, certificate, scale * multipliers, H, monotonic() - began)


def _scale(scaled: Matrix, V: Matrix) -> float:
    """The factor between V and its scaled version; the multipliers scale with it."""
    size = float(V.square().sum())
    return float((scaled * V).sum()) / size if 0 < size < math.inf else 0.0


def _without_dust(problem: Problem, z: Float[Tensor, "q m d"]) -> Float[Tensor, "q m d"]:
    """z without short sub-networks, if that hardly raises the objective: interior points never reach zero."""
    shape, length = problem.operator.block_shape, torch.linalg.vector_norm(z, dim=(1, 2))
    allowed = problem.primal(z.reshape(shape)) * (1 + _COARSENING)
    for share in _DUST:
        clean = z * (length > share * length.max())[:, None, None]
        if problem.primal(clean.reshape(shape)) <= allowed:
            return clean
    return z
