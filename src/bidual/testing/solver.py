"""What every solver promises under the driver."""

import copy
from collections.abc import Iterable
from math import inf
from typing import Any

import torch
from torch import Tensor

from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Record, Solution, Status
from bidual.solvers.driver import Solver, solve
from bidual.testing.planted import Planted, planted_problems
from bidual.testing.tools import require, require_at_least, require_close, require_refused

_ENDS = (Status.CERTIFIED, Status.EXHAUSTED)
_SCALES = ((2.0**10, 1.0), (2.0**-10, 1.0), (1.0, 2.0**3))


def check_solver(
    solver: Solver, seed: int = 0, *, tol: float = 1e-4, max_steps: int = 20_000, more: Iterable[Planted] = ()
) -> None:
    """A solver ends certified at the known optimum of all problems that it takes, and refuses others before a step.

    Args:
        solver: with its settings.
        seed: of the problems.
        tol: the relative gap that it reaches in ``max_steps``.
        max_steps: enough for every problem.
        more: problems beside the shipped ones, for solvers that take none of those.
    """
    cases = [*planted_problems(seed), *more]
    taken = [case for case in cases if _refusal(solver, case) is None]
    require(bool(taken), f"{solver.name}: takes a problem of known optimum; give one as more")
    for case in cases:
        if case in taken:
            _check_optimum(case, _run(case.problem, solver, tol, max_steps), tol)
        else:
            _check_refused(solver, case)
    first = taken[0]
    _check_unchanged(solver, first, tol, max_steps)
    _check_limits(solver, first)
    _check_start(solver, first, tol, max_steps)
    _check_scales(solver, first, seed, tol, max_steps)


def _run(
    problem: Any,
    solver: Solver,
    tol: float,
    max_steps: int,
    max_time: float | None = None,
    start: Tensor | None = None,
    seen: list[Record] | None = None,
) -> Solution:
    callback = None if seen is None else seen.append
    return solve(problem, solver, Limits(tol, max_steps, max_time), start=start, callback=callback)


def _refusal(solver: Solver, case: Planted) -> str | None:
    takes = getattr(solver, "takes", Problem)
    return solver.refusal(case.problem) if isinstance(case.problem, takes) else "another kind of problem"


def _check_refused(solver: Solver, case: Planted) -> None:
    seen: list[Record] = []
    if isinstance(case.problem, getattr(solver, "takes", Problem)):
        require_refused(f"{solver.name}: {case.name}", lambda: _run(case.problem, solver, inf, 1, seen=seen))
        require(not seen, f"{solver.name}: refuses before the first certificate")


def _check_optimum(case: Planted, solution: Solution, tol: float) -> None:
    name, found = f"{solution.solver}, {case.name}", solution.certificate
    require(solution.status in _ENDS, f"{name}: ends certified, got {solution.status} with {found}")
    require(found.within(tol), f"{name}: the gap is within tol, got {found}")
    require_at_least(found.primal, case.optimum, f"{name}: primal is no lower than the optimum", 1e-9)
    require_at_least(case.optimum, found.dual, f"{name}: dual is no higher than the optimum", 1e-9)
    _check_best(name, solution)
    if isinstance(case.problem, Problem):
        require(found.recheck(case.problem), f"{name}: the certificate rechecks")
        require_close(_dense_objective(case.problem, solution.Z), found.primal, f"{name}: Z has this primal", 1e-9)


def _check_best(name: str, solution: Solution) -> None:
    found, history = solution.certificate, solution.history
    require(torch.equal(solution.Z, found.point), f"{name}: Z is the point that was judged")
    require(bool(history), f"{name}: the history has a record")
    require(found.primal == min(record.primal for record in history), f"{name}: the best point is returned")
    require(found.dual == max(record.dual for record in history), f"{name}: the best dual is returned")
    steps = [record.step for record in history]
    require(steps == sorted(steps) and steps[-1] <= solution.n_steps, f"{name}: records count the steps")


def _dense_objective(problem: Problem, Z: Tensor) -> float:
    """P(Z) of squared loss, from the matrix of the operator, the best intercept being the mean of the residual."""
    fit = problem.datafit
    w = fit.weights.reshape(-1, 1)
    R = (problem.operator.dense() @ Z.flatten()).reshape(fit.targets.shape) - fit.targets
    R = R - (w * R).sum(0) / w.sum() if fit.intercept else R
    return 0.5 * float((w * R.square()).sum()) + problem.beta * problem.gauge.value(Z)


def _check_unchanged(solver: Solver, case: Planted, tol: float, max_steps: int) -> None:
    """Same result twice, and the problem and the start stay as they were."""
    start = None if case.point is None else 0.5 * case.point
    before = copy.deepcopy([_tensors(case.problem), start])
    first, again = (_run(case.problem, solver, tol, max_steps, start=start) for _ in range(2))
    now = [_tensors(case.problem), start]
    require(_same(before, now), f"{solver.name}: the problem and the start stay as they were")
    require(torch.equal(first.Z, again.Z), f"{solver.name}: the same result twice")
    require(first.n_steps == again.n_steps, f"{solver.name}: as many steps twice")


def _tensors(problem: Any) -> list[Tensor]:
    samples: Any = problem.operator if isinstance(problem, Problem) else problem
    return [samples.X, problem.datafit.targets, problem.datafit.weights]


def _same(one: list[Any], other: list[Any]) -> bool:
    (old, start), (new, again) = one, other
    same = all(torch.equal(a, b) for a, b in zip(old, new, strict=True))
    return same and (start is None or torch.equal(start, again))


def _check_limits(solver: Solver, case: Planted) -> None:
    free = getattr(solver, "untimed_steps", 0)
    for most in (0, 1, 3):
        done = _run(case.problem, solver, 1e-15, most)
        require(done.n_steps <= max(most, free), f"{solver.name}: {most} steps at most, got {done.n_steps}")
        require(done.certificate.dual <= case.optimum * (1 + 1e-9), f"{solver.name}: stopped early, the dual holds")
        require(case.optimum <= done.certificate.primal * (1 + 1e-9), f"{solver.name}: stopped early, the primal holds")
    done = _run(case.problem, solver, 1e-15, 1000, max_time=1e-9)
    require(done.n_steps <= 1 + free, f"{solver.name}: no time leaves no steps, got {done.n_steps}")


def _check_start(solver: Solver, case: Planted, tol: float, max_steps: int) -> None:
    """From the optimum nothing is left to do; a start that is no good does no harm."""
    if case.point is None:
        return
    warm = _run(case.problem, solver, tol, max_steps, start=case.point)
    require(
        warm.status in _ENDS and warm.n_steps == 0,
        f"{solver.name}: the optimum is certified at once, got {warm.n_steps}",
    )
    _check_optimum(case, _run(case.problem, solver, tol, max_steps, start=-10 * case.point), tol)


def _check_scales(solver: Solver, case: Planted, seed: int, tol: float, max_steps: int) -> None:
    for size, features in _SCALES:
        scaled = next((other for other in planted_problems(seed, size, features) if other.name == case.name), None)
        if scaled is not None:
            require_close(scaled.optimum / size**2, case.optimum, "planted: optima scale with squared targets")
            _check_optimum(scaled, _run(scaled.problem, solver, tol, max_steps), tol)
