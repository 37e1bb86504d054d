"""Lower bounds over all activation patterns for networks that were found by search, where no exact oracle helps."""

from dataclasses import replace

from bidual.patterns.spike_free import is_spike_free
from bidual.polar import bound_near
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.problems.certificate import PolarBound, Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Status
from bidual.training.copositive.joint import joint_bound
from bidual.training.copositive.relaxed import Relaxed
from bidual.training.copositive.spike_free import spike_free_bound
from bidual.training.relu.column_generation import Training
from bidual.types import Matrix

# Multiplications that the joint program may cost when nothing is said of time: a fraction of a second. A step of it
# costs ten times the cube of its size, and beyond the largest size steps are too slow to be worth it at any time.
_QUICK, _STEP, _LARGEST = 1e9, 10.0, 500


def prove(
    problem: ReluProblem,
    done: Training,
    *,
    tol: float,
    max_time: float | None = None,
    branch: int = 0,
    candidates: tuple[Matrix, ...] = (),
) -> Training:
    """The training with the best certificate that relaxations give.

    First the last master's dual point (and other ``candidates``) are scaled by a cheap bound of their polar, for any
    n; then, for n up to about a hundred (a few hundred with ``max_time``), dual point and bound are optimised together,
    which is two to three times as tight. ``branch`` cuts the sphere into up to 2^branch cells, while time lasts.
    """
    problem.check_weight_decay("this proof")
    relaxed = problem.oracle(lambda X: DiagonalBound(X, steps=40))
    for V in (done.dual_point, *candidates):
        done = with_dual(done, V, lambda W: relaxed.steepest(W).bracket.upper, tol)
    steps = _steps(problem, max_time)
    if not done.solution.certificate.within(tol) and steps:
        bound = _relaxed(problem, branch, max_time, steps)
        done = with_dual(done, bound.V, bound_near(problem.X, bound.V, bound.polar), tol)
    return done


def _relaxed(problem: ReluProblem, branch: int, max_time: float | None, steps: int) -> Relaxed:
    """CP (20) on spike-free data, the joint program elsewhere. CP (19) would be tighter than that, but where patterns
    are few enough for it, they are few enough for an exact oracle."""
    if len(problem.X) <= problem.X.shape[1] and is_spike_free(problem.X).holds:
        return spike_free_bound(problem, max_time=max_time, max_steps=steps)
    return joint_bound(problem, branch=branch, max_time=max_time, max_steps=steps)


def with_dual(done: Training, V: Matrix, polar: PolarBound, tol: float) -> Training:
    """The training with the better of its own dual point and V."""
    solution = done.solution
    certificate = judge(done.problem, solution.Z, V, polar, Scope.ALL_PATTERNS).with_dual_of(solution.certificate)
    status = Status.CERTIFIED if certificate.within(tol) else solution.status
    return replace(done, solution=replace(solution, certificate=certificate, status=status))


def _steps(problem: ReluProblem, max_time: float | None) -> int:
    """How many steps of the joint program are affordable; 0 where it is not worth starting."""
    size = 2 * len(problem.X) + min(problem.X.shape) + problem.datafit.targets.shape[1]
    if size > _LARGEST or problem.readout is not None:
        return 0
    affordable = int(_QUICK / (_STEP * size**3))
    return 3000 if max_time is not None else min(affordable, 1000) if affordable >= 50 else 0
