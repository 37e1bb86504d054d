"""Operators that compute in parts, and problems of single precision that are handed to the judge as they are."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from torch import Tensor

from bidual.gauges import GAUGES
from bidual.operators import GatedOperator, LiftedOperator
from bidual.operators.sharded import OrderChannel, Part, ShardedKernelOperator, ShardedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.patterns import activations
from bidual.problems.certificate import Certificate, Scope, certify, judge, polar_bound
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.runtime.ranks import ALONE
from bidual.solvers import FISTA, PrimalDual
from bidual.solvers.driver import solve
from soundness.cases import BREAKDOWNS, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import GAUGES as PRICES
from soundness.extended import LOSSES, gated_design, wide
from soundness.samples import KINDS, samples, targets

_SECONDS = 0.15


class Several(Part):
    """The parts of several ranks in one process: what a :class:`Part` does, without sending."""

    def __init__(self, locals_: Sequence[LiftedOperator]) -> None:
        super().__init__(locals_[0], ALONE, [each.output_shape[0] for each in locals_])
        self.locals = list(locals_)

    def forward(self, Z: Tensor | None = None) -> Tensor:
        return torch.cat([each.forward(Z) for each in self.locals])

    def adjoint(self, V: Tensor | None = None) -> Tensor:
        parts = V.split(list(self.sizes))  # type: ignore[union-attr]
        sums = [each.adjoint(part).to(torch.float64) for each, part in zip(self.locals, parts, strict=True)]
        return torch.stack(sums).sum(0)

    def magnitude(self) -> float:
        return float(torch.tensor([each.magnitude for each in self.locals], dtype=torch.float64).sum())

    def select(self, blocks: Tensor | None, count: int) -> "Several":
        return Several([each.select(blocks) for each in self.locals])  # type: ignore[arg-type]

    def to(self, dtype: torch.dtype) -> "Several":
        return Several([each.to(dtype) for each in self.locals])

    def design(self) -> Tensor:
        return torch.cat([each.design() for each in self.locals])  # type: ignore[attr-defined]


def parts_case(rng: Generator) -> Iterator[Issued]:
    """The gated operator by tiles, by shards, and whole, in both precisions, on one problem."""
    kind, loss, gauge = (str(rng.choice(list(names))) for names in (KINDS, LOSSES, GAUGES))
    n, d, c, p = (int(rng.integers(1, most)) for most in (60, 4, 4, 5))
    X, gates = samples(rng, kind, n, d), rng.standard_normal((d, p))
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    for name in ("tiles", "shards", "whole"):
        dtype = torch.float32 if rng.random() < 0.6 else torch.float64
        operator, design = _made(rng, name, X, gates, c, dtype)
        problem = Problem(operator, fit.datafit_in(dtype), GAUGES[gauge](), 1.0)
        beta = single(share_of_beta_max(rng) * (problem.to(torch.float64).beta_max or 1.0))
        told = labels(
            architecture=f"gated in {name}" if name != "whole" else "gated",
            loss=loss,
            gauge=gauge,
            solver="fista",
            dtype=dtype,
            scope="BLOCKS",
            data=kind,
        )
        yield _issued(rng, told, problem.with_beta(beta), fit, gauge, design)


def _made(
    rng: Generator, name: str, X: ndarray, gates: ndarray, c: int, dtype: torch.dtype
) -> tuple[LiftedOperator, ndarray]:
    """The operator, and its design in extended precision."""
    if name == "tiles":
        return _tiled(rng, X, gates, c, dtype)
    active = activations(torch.from_numpy(X), torch.from_numpy(gates))
    there = torch.from_numpy(X).to(dtype)
    if name == "whole":
        return GatedOperator(there, active, c), gated_design(X, active.numpy())
    cuts = np.sort(rng.integers(0, len(X) + 1, int(rng.integers(1, 4))))
    rows = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(X)], strict=True)]
    part = Several([GatedOperator(there[some], active[:, some].contiguous(), c) for some in rows])
    kind = ShardedOperator if rng.random() < 0.5 else ShardedKernelOperator
    return kind(part, OrderChannel(ALONE)), gated_design(X, active.numpy())


def _tiled(rng: Generator, X: ndarray, gates: ndarray, c: int, dtype: torch.dtype) -> tuple[TiledOperator, ndarray]:
    """Rows of either precision, perhaps standardised and with a constant; tiles of one row up to all of them."""
    stored = X.astype(np.float32) if rng.random() < 0.5 else X
    centre, scale, constant = np.zeros(X.shape[1]), np.ones(X.shape[1]), bool(rng.random() < 0.5)
    if rng.random() < 0.5:
        centre, scale = X.mean(0), X.std(0)
    safe = np.where(scale > 0, scale, np.inf)
    seen = (X - centre) / safe  # in double precision, as the judge's operator has it
    if constant:
        seen, gates = np.column_stack([seen, np.ones(len(X))]), np.vstack([gates, rng.standard_normal(gates.shape[1])])
    mapped = MappedRows(stored, None, torch.from_numpy(centre), torch.from_numpy(scale), constant)
    size = 2 ** int(rng.integers(4, 18))
    kept = 0 if rng.random() < 0.5 else 2**20
    operator = TiledOperator(mapped, torch.from_numpy(gates), c, dtype, tile_bytes=size, kept_bytes=kept)
    active = activations(torch.from_numpy(seen), torch.from_numpy(gates))
    return operator, gated_design(seen, active.numpy())


def _issued(rng: Generator, told: dict[str, str], problem: Problem, fit: Fit, gauge: str, design: ndarray) -> Issued:
    exact, judged = problem.datafit.to(torch.float64), problem.operator.to(torch.float64)

    def objective(Z: ndarray) -> np.longdouble:
        predictions, seen = design @ wide(Z).reshape(-1, fit.Y.shape[1]), judged.forward(torch.from_numpy(Z))
        return fit.value(exact, predictions, seen) + PRICES[gauge](wide(Z)) * np.longdouble(problem.beta)

    issued = Issued(told, attained=[objective(judged.zeros().numpy())])
    try:
        certificates = _certificates(rng, problem)
    except BREAKDOWNS as error:
        certificates, issued.refused = [], type(error).__name__
    issued.certificates = [(made, objective(made.point.numpy())) for made in certificates]
    return issued


def _certificates(rng: Generator, problem: Problem) -> list[Certificate]:
    """By a few steps of a solver, and of points and dual candidates in the problem's own precision."""
    solver = FISTA() if FISTA().refusal(problem) is None else PrimalDual()
    done = solve(problem, solver, Limits(1e-9, int(rng.choice([3, 100])), max_time=_SECONDS))
    like = problem.operator.like
    near = done.Z.to(like) * (1 + 1e-6 * torch.from_numpy(rng.standard_normal(done.Z.shape))).to(like)
    wild = torch.from_numpy(rng.standard_normal(done.Z.shape) * 10.0 ** rng.uniform(-6, 6)).to(like)
    V = problem.residual(near) * float(rng.choice([-1, 1, 0.5, 3]))
    polar = polar_bound(problem.to(torch.float64))
    judged = judge(problem, near, V, polar, Scope.BLOCKS)
    return [done.certificate, judged, certify(problem, near, [V]), certify(problem, wild, [V, -V])]
