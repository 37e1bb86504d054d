"""Ways to train a ReLU network besides column generation, by name; a new one is one more entry."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual import patterns as activation_patterns
from bidual.patterns.reduction import reduce_rank
from bidual.polar import NeuronOracle, Neurons, bound_near
from bidual.problems.certificate import PolarBound, Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.solvers.driver import Callback, Record, Solution, Status
from bidual.training.copositive import CopositiveTraining
from bidual.training.relu.closed_form import closed_form
from bidual.training.relu.column_generation import Training
from bidual.training.relu.cutting_planes import CuttingPlanes
from bidual.training.relu.frank_wolfe import FrankWolfe
from bidual.types import Matrix

_CONES = 1e-6  # cone programs are solved at least so far: looser points split neurons over neighbouring cones


class Limits(NamedTuple):
    """When to stop."""

    tol: float
    max_steps: int | None
    max_time: float | None

    def left(self, done: Training) -> float | None:
        """Seconds that are left, at least a moment."""
        return None if self.max_time is None else max(self.max_time - done.solution.seconds, 0.1)


@dataclass(frozen=True, eq=False)
class Task:
    """What a method is given; the oracle is made when it is asked for, because that may take long."""

    problem: ReluProblem
    make_oracle: Callable[[], NeuronOracle]
    limits: Limits
    seed: int = 0
    callback: Callback | None = None

    @cached_property
    def oracle(self) -> NeuronOracle:
        return self.make_oracle()

    def upper(self, V: Matrix) -> float:
        """The oracle's bound of the polar."""
        return self.oracle.steepest(V).bracket.upper


def _takes_all(task: Task) -> None:
    """No refusal."""


class Method(NamedTuple):
    """A way to train, and what it refuses before any work."""

    train: Callable[[Task], Training]
    check: Callable[[Task], None] = _takes_all


def formula(task: Task) -> Training | str:
    """CP Theorem 2, which needs X X^T = s^2 I, so no more samples than features; or why it does not apply."""
    began, form = time.perf_counter(), closed_form(task.problem)
    if not form.applies:
        return form.reason
    polar = bound_near(task.problem.X, form.dual_point, form.polar)
    run = Run("closed_form", began)
    return judged(task.problem, form.neurons, form.weights, form.dual_point, polar, run, task.limits.tol)


def by_formula(task: Task) -> Training:
    """CP Theorem 2 or a refusal."""
    done = formula(task)
    if isinstance(done, str):
        raise ValueError(f"{done} Use solver='auto'.")
    return done


def _check_formula(task: Task) -> None:
    form = closed_form(task.problem)
    if not form.applies:
        raise ValueError(f"{form.reason} Use solver='auto'.")


def by_cones(task: Task) -> Training:
    """CP (9) over all patterns, in the coordinates of the row space."""
    problem, limits = task.problem, task.limits
    began, active = time.perf_counter(), activation_patterns.enumerate(problem.X).active
    reduced = reduce_rank(problem.X.detach().to("cpu", torch.float64).numpy())
    small = replace(problem, X=torch.from_numpy(reduced.samples).to(problem.X))
    tol = min(0.5 * limits.tol, _CONES)
    found = solve_cone_program(small, active, complete=True, tol=tol, time_limit=limits.max_time)
    neurons = found.neurons @ torch.from_numpy(reduced.basis.T).to(problem.X)
    run = Run("cone_program", began)
    return judged(problem, neurons, found.weights, found.dual, task.upper, run, limits.tol)


def _check_one_output(task: Task) -> None:
    outputs = task.problem.datafit.targets.shape[1]
    if outputs != 1:
        raise ValueError(f"solver='cone_program' is CP (9), for one output, got {outputs}; use column_generation.")


def by_frank_wolfe(task: Task) -> Training:
    """CP Algorithm 1, with a search for the budget t."""
    problem, limits = task.problem, task.limits
    began, steps = time.perf_counter(), 3000 if limits.max_steps is None else limits.max_steps
    longest = inf if limits.max_time is None else limits.max_time
    runs = 20 if limits.max_steps is None else 1
    found = FrankWolfe(max_steps=steps).search(problem, task.oracle, tol=limits.tol, max_runs=runs, max_time=longest)
    V = problem.restricted_to(found.neurons).residual(found.weights[:, None])
    run = Run("frank_wolfe", began, found.steps, found.history)
    return judged(problem, found.neurons, found.weights, V, task.upper, run, limits.tol)


def by_cutting_planes(task: Task) -> Training:
    """CP A.5."""
    limits = task.limits
    return CuttingPlanes().train(
        task.problem,
        task.oracle,
        tol=limits.tol,
        max_steps=200 if limits.max_steps is None else limits.max_steps,
        max_time=limits.max_time,
        callback=task.callback,
    )


def _check_cuts(task: Task) -> None:
    CuttingPlanes().check(task.problem)
    if not task.oracle.proves:
        n, d = task.problem.X.shape
        raise ValueError(
            f"solver='cutting_planes' asks for the steepest neuron exactly, which {n} samples of {d} features are too "
            "many for; use solver='column_generation', or fewer features."
        )


def by_relaxation(task: Task) -> Training:
    """CP (19), (20) or the joint relaxation, rounded to a network; it brings its own certificate."""
    rounds = CopositiveTraining.rounds if task.limits.max_steps is None else max(task.limits.max_steps, 1)
    training = CopositiveTraining(rounds=rounds, seed=task.seed)
    return training.train(task.problem, tol=task.limits.tol, max_time=task.limits.max_time, callback=task.callback)


def _check_relaxation(task: Task) -> None:
    CopositiveTraining(seed=task.seed).check(task.problem)


METHODS: Mapping[str, Method] = {
    "cone_program": Method(by_cones, _check_one_output),
    "frank_wolfe": Method(by_frank_wolfe),
    "closed_form": Method(by_formula, _check_formula),
    "cutting_planes": Method(by_cutting_planes, _check_cuts),
    "copositive": Method(by_relaxation, _check_relaxation),
}


class Run(NamedTuple):
    """How a network came about, for the record."""

    solver: str
    began: float
    steps: int = 1
    history: tuple[Record, ...] = ()


def judged(
    problem: ReluProblem,
    neurons: Neurons,
    weights: Float[Tensor, "m c"],
    V: Matrix,
    polar: PolarBound,
    run: Run,
    tol: float,
) -> Training:
    """A network made by another method, as a training with its certificate over all patterns."""
    master = problem.restricted_to(neurons)
    Z = (torch.linalg.vector_norm(neurons, dim=1, keepdim=True) * weights)[:, None]
    certificate = judge(master, Z, V, polar, Scope.ALL_PATTERNS)
    gap, seconds = certificate.relative_gap, time.perf_counter() - run.began
    history = run.history or (Record(run.solver, 1, seconds, certificate.primal, certificate.dual, gap),)
    status = Status.CERTIFIED if gap <= tol else Status.STALLED
    return Training(master, Solution(Z, certificate, status, run.steps, seconds, history, run.solver), V, gap)
