"""What every solver promises under the driver, on training problems whose optimum is known in closed form."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from bidual.gauges import GAUGES, Gauge, Proximable
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L2
from bidual.operators import GatedOperator, LiftedOperator, NeuronOperator
from bidual.polar import Faces
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Record, Solution, Status
from bidual.solvers.driver import Solver, solve
from bidual.testing.tools import normal, positive, require, require_at_least, require_close, require_refused
from bidual.types import as_protocol

_ENDS = (Status.CERTIFIED, Status.EXHAUSTED)
_SCALES = ((2.0**10, 1.0), (2.0**-10, 1.0), (1.0, 2.0**3))
Make = Callable[[Any], Solver]


@dataclass(frozen=True, eq=False)
class Planted:
    """A problem of squared loss with its least objective."""

    name: str  # of the operator and the gauge
    problem: Problem | ReluProblem
    optimum: float
    point: Tensor | None = None  # a lifted variable of that objective, where the problem has one


def planted_problems(seed: int, size: float = 1.0, features: float = 1.0) -> Iterator[Planted]:
    """For every gauge, gated networks with one and two outputs and a dictionary of neurons; and one ReLU network.

    The same problems at every scale: targets, weights and beta grow with ``size``, the samples with ``features``.
    """
    for name in ("gated, one output", "gated, two outputs", "neurons"):
        for gauge, cls in GAUGES.items():
            generator = torch.Generator().manual_seed(seed)
            operator = _operator(name, features, generator)
            if isinstance(made := cls(), Proximable):
                yield _planted(f"{name}, {gauge}", operator, made, size, features, generator)
    yield _planted_relu(seed, size, features)


def _operator(name: str, features: float, generator: torch.Generator) -> LiftedOperator:
    X = features * normal((8, 3), generator)
    if name == "neurons":
        return NeuronOperator(X, L2.unit(normal((6, 3), generator)), 2)
    return GatedOperator(X, normal((4, 8), generator) > 0, 1 if name.endswith("one output") else 2)


def _planted(
    name: str, operator: LiftedOperator, gauge: Gauge, size: float, features: float, generator: torch.Generator
) -> Planted:
    r"""Draw the dual point V first, then the Z that it supports, then the targets that make V the gradient at A Z.

    Z is optimal iff Omega°(-A* V) = beta and <-A* V, Z> = beta Omega(Z) for V = grad F(A Z) = w (A Z - Y). A proximal
    step just short of the polar leaves a Z with the second property. Balanced V leave the targets free to shift.
    """
    V, weight = normal(operator.output_shape, generator), positive((operator.output_shape[0],), generator)
    V = size * (V - V.mean(0))
    slope = -operator.adjoint(V)
    beta = 0.5 * (gauge.polar(slope).lower + gauge.polar(slope).upper)
    Z = as_protocol(gauge, Proximable).prox(slope, beta * (1 - 1e-6))
    Z = (2 * size / features) * Z / gauge.value(Z)
    targets = operator.forward(Z) - V / weight[:, None] + 2 * size
    optimum = 0.5 * float((V.square() / weight[:, None]).sum()) + beta * gauge.value(Z)
    problem = Problem(operator, Datafit(Squared(), targets, weight, intercept=True), gauge, beta)
    return Planted(name, problem, optimum, Z)


def _planted_relu(seed: int, size: float, features: float) -> Planted:
    """Orthogonal samples of one length: the rows of targets with each sign are shrunk like a vector (CP Theorem 3)."""
    generator = torch.Generator().manual_seed(seed)
    X = features * torch.linalg.qr(normal((5, 4), generator)).Q.T
    y, beta = size * normal((4, 1), generator), 0.4 * size * features
    halves = [float(torch.linalg.vector_norm(part)) for part in (y.clamp(min=0), y.clamp(max=0))]
    threshold = beta / features
    optimum = sum(threshold * h - 0.5 * threshold**2 if h > threshold else 0.5 * h * h for h in halves)
    return Planted("ReLU, orthogonal samples", ReluProblem(X, Datafit(Squared(), y), beta), optimum)


def check_solver(
    make: Make, seed: int = 0, *, tol: float = 1e-4, max_steps: int | None = 20_000, more: Iterable[Planted] = ()
) -> None:
    """A solver ends certified at the known optimum of all problems that it takes, and refuses others before a step.

    Args:
        make: the solver for a problem, such as ``lambda problem: FISTA()``.
        seed: of the problems.
        tol: the relative gap that it reaches in ``max_steps``.
        max_steps: enough for every problem; None for the limit of the solver.
        more: problems beside the shipped ones, for solvers that take none of those.
    """
    runs = [_Runs(make(case.problem), case, tol, max_steps) for case in (*planted_problems(seed), *more)]
    taken = [one for one in runs if one.solver.refusal(one.case.problem) is None]
    require(bool(taken), f"{runs[0].solver.name}: takes a problem of known optimum; give one as more")
    for one in runs:
        if one in taken:
            one.check_optimum(one.solution())
        else:
            one.check_refused()
    taken[0].check_unchanged()
    taken[0].check_limits()
    taken[0].check_start()
    for case in _scaled(taken[0].case.name, seed):
        scaled = _Runs(make(case.problem), case, tol, max_steps)
        scaled.check_optimum(scaled.solution())


def _scaled(name: str, seed: int) -> Iterator[Planted]:
    """The problem of this name at other scales of its targets and of its samples."""
    return (case for scale in _SCALES for case in planted_problems(seed, *scale) if case.name == name)


@dataclass(frozen=True, eq=False)
class _Runs:
    """Runs of one solver on one problem."""

    solver: Solver
    case: Planted
    tol: float
    max_steps: int | None

    @property
    def name(self) -> str:
        return f"{self.solver.name}, {self.case.name}"

    def solution(self, start: Tensor | None = None, **limits: float | None) -> Solution:
        given = {"tol": self.tol, "max_steps": self.max_steps} | limits
        return solve(self.case.problem, self.solver, Limits(**given), start=start)  # type: ignore[arg-type]

    def check_refused(self) -> None:
        seen: list[Record] = []
        call = partial(solve, self.case.problem, self.solver, Limits(inf, 1), callback=seen.append)
        require_refused(self.name, call)
        require(not seen, f"{self.name}: refuses before the first certificate")

    def check_optimum(self, solution: Solution) -> None:
        found, optimum = solution.certificate, self.case.optimum
        require(solution.status in _ENDS, f"{self.name}: ends certified, got {solution.status} with {found}")
        require(found.within(self.tol), f"{self.name}: the gap is within tol, got {found}")
        self._check_bracket(found)
        self._check_best(solution)
        oracle = None if isinstance(self.case.problem, Problem) else Faces(self.case.problem.X)
        require(found.recheck(solution.problem, oracle), f"{self.name}: the certificate rechecks")
        objective = _dense_objective(solution)
        require_close(objective / optimum, found.primal / optimum, f"{self.name}: Z has this primal", 1e-9)

    def _check_bracket(self, found: Certificate) -> None:
        primal, dual = found.primal / self.case.optimum, found.dual / self.case.optimum
        require_at_least(primal, 1.0, f"{self.name}: primal is no lower than the optimum", 1e-9)
        require_at_least(1.0, dual, f"{self.name}: dual is no higher than the optimum", 1e-9)

    def _check_best(self, solution: Solution) -> None:
        found, history = solution.certificate, solution.history
        require(torch.equal(solution.Z, found.point), f"{self.name}: Z is the point that was judged")
        require(bool(history), f"{self.name}: the history has a record")
        require(found.primal == min(record.primal for record in history), f"{self.name}: the best point is returned")
        require(found.dual == max(record.dual for record in history), f"{self.name}: the best dual is returned")
        steps = [record.step for record in history]
        require(steps == sorted(steps) and steps[-1] <= solution.n_steps, f"{self.name}: records count the steps")

    def check_unchanged(self) -> None:
        """The problem and the start stay as they were, and the result is the same twice."""
        start = self.solution().neurons if self.case.point is None else 0.5 * self.case.point
        tensors = [start, *_tensors(self.case.problem)]
        before = [part.clone() for part in tensors]
        first, again = (self.solution(start) for _ in range(2))
        same = all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))
        require(same, f"{self.name}: the problem and the start stay as they were")
        require(torch.equal(first.Z, again.Z), f"{self.name}: the same result twice")
        require(first.n_steps == again.n_steps, f"{self.name}: as many steps twice")

    def check_limits(self) -> None:
        """Limits are kept from the first point on, and bounds hold wherever a run is stopped."""
        least = max(self.solver.untimed_steps, int(not isinstance(self.case.problem, Problem)))
        for most in (0, 1, 3):
            done = self.solution(tol=1e-15, max_steps=most)
            require(done.n_steps <= max(most, least), f"{self.name}: {most} steps at most, got {done.n_steps}")
            self._check_bracket(done.certificate)
        done = self.solution(tol=1e-15, max_time=1e-9)
        require(done.n_steps <= 1 + least, f"{self.name}: no time leaves no steps, got {done.n_steps}")

    def check_start(self) -> None:
        """From the optimum nothing is left to do; a start that is no good does no harm."""
        if self.case.point is None:
            self.check_optimum(self.solution(self.solution().neurons))
            return
        warm = self.solution(self.case.point)
        at_once = warm.status in _ENDS and warm.n_steps == 0
        require(at_once, f"{self.name}: the optimum is certified at once, got {warm.n_steps} steps")
        self.check_optimum(self.solution(-10 * self.case.point))


def _tensors(problem: Any) -> list[Tensor]:
    samples: Any = problem.operator if isinstance(problem, Problem) else problem
    return [samples.X, problem.datafit.targets, problem.datafit.weights]


def _dense_objective(solution: Solution) -> float:
    """P(Z) of squared loss from the matrix of the operator; the best intercept is the mean of the residual."""
    problem, Z = solution.problem, solution.Z
    fit = problem.datafit
    w = fit.weights.reshape(-1, 1)
    R = (problem.operator.dense() @ Z.flatten()).reshape(fit.targets.shape) - fit.targets
    R = R - (w * R).sum(0) / w.sum() if fit.intercept else R
    return 0.5 * float((w * R.square()).sum()) + problem.beta * problem.gauge.value(Z)
