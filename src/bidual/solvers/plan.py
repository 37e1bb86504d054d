"""Which solver for which problem, and solving along a path of betas."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch

from bidual.gauges import Conic, Factorised
from bidual.operators import HasKernel
from bidual.problems.certificate import certify
from bidual.problems.problem import Problem
from bidual.problems.solution import DEFAULT_LIMITS, Callback, Limits, Solution, Status, Watch
from bidual.runtime.crossovers import CROSSOVERS, Crossovers
from bidual.runtime.numerical_errors import NUMERICAL
from bidual.solvers import (
    FISTA,
    SOLVERS,
    ActiveNeurons,
    EtaNewton,
    InteriorPoint,
    KernelADMM,
    PrimalDual,
    QInteriorPoint,
)
from bidual.solvers.driver import Plan, Solver, Stage, run, threads_of
from bidual.solvers.kernel import is_narrow
from bidual.types import Blocks, Matrix

_MOST_BETAS = 10_000  # of a path, as many as a report shows
_DUST = 1e-5  # neurons smaller than this share of the largest may be rounding
_COST = 1e-2  # of the gap, what dropping them may cost


def plan(problem: Problem, limits: Limits) -> Plan:
    """Solvers to run one after another, each from where the last one stopped, until ``limits.tol`` is certified."""
    stages = (stage for stage in _candidates(problem, limits.tol) if stage.solver.refusal(problem) is None)
    return in_turn(stages, limits)


def in_turn(stages: Iterable[Stage], limits: Limits) -> Plan:
    """Given stages in turn, within ``limits`` together; one that fails for numerical reasons is left out."""
    began, done, failure = time.perf_counter(), None, None
    for stage in stages:
        left = limits.after(time.perf_counter() - began, 0 if done is None else done.n_steps)
        if done is not None and (done.status is Status.MAX_TIME or left.max_steps == 0):
            return
        steps = stage.limits.max_steps if left.max_steps is None else left.max_steps
        try:
            done = yield Stage(stage.solver, replace(stage.limits, max_steps=steps, max_time=left.max_time))
        except NUMERICAL as error:  # numbers beyond this stage's precision; the next may have more
            failure = error
    if done is None and failure is not None:
        raise failure


def _candidates(problem: Problem, tol: float, at: Crossovers = CROSSOVERS) -> Iterator[Stage]:
    n, (p, a, c) = problem.operator.output_shape[0], problem.operator.block_shape
    coupled = isinstance(problem.gauge, Conic) and problem.gauge.cone(c) == "semidefinite"
    cones = p * ((a + c) * (a + c + 1) / 2) ** 3 if coupled else 0.0
    small = n * p * a * c <= (at.small_design if coupled else at.tiny_design)
    if coupled and p * a * (a + 1) / 2 <= at.q_entries and n <= at.q_samples:
        yield Stage(QInteriorPoint(), Limits(tol, 60))
    if small and cones <= at.cheap_cones and (coupled or tol < 1e-4):
        yield Stage(InteriorPoint(), Limits(tol, 2))
    narrow = 2 * p * a <= at.largest_kernel and isinstance(problem.operator, HasKernel)
    if narrow and n > 2 * p * a and n * (p * a) ** 2 > at.narrow_work:
        yield Stage(ActiveNeurons(), Limits(tol, 400))
    if n <= at.largest_kernel or narrow:
        yield from _kernel_stages(problem, tol, at)
        if cones <= at.tolerable_cones and n * p * a * c <= 20 * at.small_design:
            yield Stage(InteriorPoint(), Limits(tol, 2))
    else:
        yield Stage(ActiveNeurons(), Limits(tol, 400))
    yield Stage(FISTA(), Limits(tol, 20_000))
    yield Stage(PrimalDual(), Limits(tol, 20_000))


def _kernel_stages(problem: Problem, tol: float, at: Crossovers) -> Iterator[Stage]:
    newton, short = EtaNewton(), problem.operator.output_shape[0] <= at.short
    wide = isinstance(problem.operator, HasKernel) and not is_narrow(problem.operator)
    if newton.refusal(problem) is None and (short or wide):  # its matrices are n x n even where the design is narrow
        gap, steps = (at.hand_over_short, at.steps_short) if short else (at.hand_over, at.steps)
        yield Stage(KernelADMM("float32"), Limits(max(tol, gap), steps))
        yield Stage(newton, Limits(tol if problem.operator.output_shape[0] > at.tiny else 0.0, 60))
    if tol >= at.single:
        yield Stage(KernelADMM("float32"), Limits(tol, 1000))
    yield Stage(KernelADMM("float64"), Limits(tol, 4000))


def solve_auto(
    problem: Problem,
    limits: Limits = DEFAULT_LIMITS,
    *,
    start: Blocks | None = None,
    dual: Matrix | None = None,
    callback: Callback | None = None,
    solver: str | Solver | Sequence[Stage] = "auto",
    watch: Watch | None = None,
) -> Solution:
    """Solve with a named solver, with given stages, or with the plan for this problem; see :func:`solve`."""
    if solver == "auto":
        stages = plan(problem, limits)
    elif isinstance(solver, str | Solver):
        stages = in_turn((Stage(make_solver(solver), limits),), limits)
    else:
        stages = in_turn(solver, limits)
    with threads_of(problem):
        done = run(problem, stages, limits.tol, start=start, dual=dual, callback=callback, watch=watch)
        return _without_dust(problem, done, limits.tol)


def _without_dust(problem: Problem, done: Solution, tol: float) -> Solution:
    """The solution without neurons that are only rounding, if that costs next to nothing of its gap."""
    if not isinstance(problem.gauge, Factorised) or not done.Z.numel() or not isfinite(done.certificate.primal):
        return done
    U, W = problem.gauge.split(done.Z)
    size = torch.linalg.vector_norm(U, dim=1) * torch.linalg.vector_norm(W, dim=1)
    alive = size > _DUST * size.max()
    if torch.equal(alive, size > 0):
        return done
    old = done.certificate
    certificate = certify(problem, (U * alive[:, None, :]) @ W.mT).with_dual_of(old)
    dear = certificate.primal > old.primal + _COST * max(old.gap, 1e-12 * old.primal)
    if dear or certificate.relative_gap > max(old.relative_gap, tol):
        return done
    return replace(done, Z=certificate.point, certificate=certificate, verdict=None)


def make_solver(solver: str | Solver) -> Solver:
    if isinstance(solver, Solver):
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}, got {solver!r}.")
    return SOLVERS[solver]()


def beta_grid(beta_max: float, count: Any, ratio: Any) -> list[float]:
    """``count`` betas from beta_max down to ratio * beta_max, in equal ratios."""
    if (
        not all(isinstance(value, Real) for value in (count, ratio))
        or count % 1
        or not 1 <= count <= _MOST_BETAS
        or not 0 < ratio < 1
    ):
        raise ValueError(f"a path needs 1 <= count <= {_MOST_BETAS} and 0 < ratio < 1, got {count!r} and {ratio!r}.")
    return [float(beta) for beta in beta_max * np.geomspace(1.0, ratio, int(count))]


def check_betas(betas: Any) -> None:
    """Refuse a list of betas that is empty or holds anything but positive finite numbers."""
    try:
        values = np.asarray(betas, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"betas must be a list of positive finite numbers, got {betas!r}.")
