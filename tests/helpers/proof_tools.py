"""Certificates for proof files, and proof files with something changed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from bidual.cli.bidual_check import verdict
from bidual.gauges import Gauge
from bidual.losses import Loss, Softmax, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator, NeuronOperator
from bidual.polar.products.cells import Cell
from bidual.polar.products.multipliers import Multipliers
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.witness import ProductProof, proof_of
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto

Change = Callable[[dict[str, Tensor]], Any]


def changed(path: Path, change: Change) -> tuple[int, str]:
    """The verdict after a change of the tables."""
    with safetensors.safe_open(path, framework="pt") as file:
        metadata, tables = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tables)
    other = path.with_name("changed")
    other.write_bytes(safetensors.torch.save(tables, metadata))
    return verdict(other)


def times(name: str, factor: float) -> Change:
    """The largest number of a table times a factor."""

    def change(tables: dict[str, Tensor]) -> None:
        entries = tables[name].flatten()
        entries[int(entries.abs().argmax())] *= factor
        tables[name] = entries.reshape(tables[name].shape)

    return change


def targets(loss: Loss, c: int, generator: torch.Generator) -> Tensor:
    draw = torch.randn(10, c, generator=generator, dtype=torch.float64)
    if isinstance(loss, Softmax):
        return torch.nn.functional.one_hot(draw.argmax(1), c).double()
    if loss.counts:
        return draw.exp().round()
    return draw.sign() if loss.classification else draw


def maps(c: int, generator: torch.Generator) -> list[LiftedOperator]:
    X = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    signs = torch.randint(-1, 2, (4, 10), generator=generator).double()
    neurons = torch.nn.functional.normalize(torch.randn(5, 3, generator=generator, dtype=torch.float64), dim=1)
    return [GatedOperator(X, signs, c), LinearOperator(X, c), NeuronOperator(X, neurons, c)]


def solved(loss: Loss, c: int, seed: int, which: int, gauge: Gauge, intercept: bool) -> tuple[Certificate, Problem]:
    generator = torch.Generator().manual_seed(seed)
    Y, operator = targets(loss, c, generator), maps(c, generator)[which]
    weight = torch.rand(10, generator=generator, dtype=torch.float64) + 0.1 if seed % 2 else None
    problem = Problem(operator, Datafit(loss, Y, weight, intercept), gauge, 1.0)
    problem = problem.with_beta(max(0.2 * problem.beta_max, 0.05))
    solution = solve_auto(problem, Limits(1e-6, max_time=2))
    return solution.certificate, solution.problem


def halves(cell: Cell, at: Multipliers, rows: tuple[int, ...]) -> Iterator[tuple[Cell, Multipliers]]:
    """The cell cut by a row, and its active half by the next."""
    if not rows:
        yield cell, at
        return
    for half, sign in zip(cell.split(rows[0]), (1, -1), strict=True):
        yield from halves(half, at.inherited(cell, rows[0], sign), rows[1:] if sign > 0 else ())


def with_products(n: int, d: int, c: int, repeated: bool, seed: int, **settings: Any) -> tuple[Certificate, Problem]:
    """A network of random neurons, judged by the product bound before any descent."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    X = torch.cat([X, X[: n // 2]]) if repeated else X
    Y = torch.randn(len(X), c, generator=generator, dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), Y, None, True), 1.0)
    V = problem.dual_at_zero
    rows = problem.oracle(lambda rows: ProductBound(rows, **settings))
    inner: Any = getattr(rows, "inner", rows)
    W = (rows.merged(V) if repeated else V) * rows.lengths[:, None]
    W = W / torch.linalg.vector_norm(W)
    cells = inner.start(W)
    if settings.get("dense", 600) > 1:
        cells = inner._descended(cells, W)
    witness = tuple(
        proof_of(inner.X, inner._scaled, half, at)
        for place in cells.places
        for half, at in halves(place.cell, place.multipliers(place.vector), (0, 2))
    )
    neurons = torch.nn.functional.normalize(torch.randn(4, d, generator=generator, dtype=torch.float64), dim=1)
    program = problem.restricted_to(neurons)
    Z = 0.01 * torch.randn(4, 1, c, generator=generator, dtype=torch.float64)
    oracle = problem.oracle(lambda X: ProductProof(X, witness))
    polar = lambda V: oracle.steepest(V).bracket.upper  # noqa: E731
    return judge(program, Z, V, polar, Scope.ALL_PATTERNS, witness=witness), program
