import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from bidual.estimators.whitening import ZCAWhitening
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import NORMS
from bidual.polar import Faces, bound_near
from bidual.polar.base import Pooled
from bidual.polar.exact.faces import affordable, face_count
from bidual.problems.certificate import Scope
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.runtime.crossovers import PROOFS
from bidual.solvers.driver import Plan
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.lower_bounds import DualPoints
from bidual.training.relu.plan import MOMENT, RELU_SOLVERS, ReluPlan
from bidual.training.relu.product_bound import JointProductBound


def _problem(n: int = 12, d: int = 2, c: int = 1, beta: float = 0.1, intercept: bool = True) -> ReluProblem:
    generator = torch.Generator().manual_seed(n + d + c)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    Y = torch.randn(n, c, generator=generator, dtype=torch.float64)
    return ReluProblem(X, Datafit(Squared(), Y, intercept=intercept), beta)


@pytest.mark.parametrize("solver", ["column_generation", "cone_program"])
def test_methods_agree_on_one_output(solver: str) -> None:
    problem = _problem()
    done = ReluPlan(problem.X).train(problem, Limits(1e-7), solver=solver)
    exact = ReluPlan(problem.X).train(problem, Limits(1e-9))
    assert done.certificate.scope is Scope.ALL_PATTERNS
    assert done.certificate.relative_gap <= 1e-7
    assert done.certificate.primal == pytest.approx(exact.certificate.primal, rel=1e-6)


def test_a_candidate_outside_the_domain_is_bounded_after_it_was_moved() -> None:
    X = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
    Y = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), Y, intercept=True), 0.01)
    stray = torch.tensor([[-2.0], [0.0], [0.0]], dtype=torch.float64)
    certificate = ReluPlan(X, "search", 16).train(problem, candidates=(stray,)).certificate
    assert certificate.dual <= certificate.primal


def test_the_bound_of_a_neighbour_holds() -> None:
    problem = _problem(c=2)
    V, W = problem.datafit.targets, problem.datafit.targets + 0.05 * problem.X[:, :1]
    oracle = Faces(problem.X)
    assert bound_near(problem.X, V, oracle.steepest(V).bracket.upper)(W) >= oracle.steepest(W).bracket.lower


@pytest.mark.parametrize("scale", [1e-170, 1e-8, 1e8, 1e160])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_exact_oracle_does_not_depend_on_units(rank: int, scale: float) -> None:
    problem = _problem(8, rank, 2)
    V = problem.datafit.targets
    bracket, in_x, in_v = (
        Faces(X).steepest(W).bracket for X, W in ((problem.X, V), (problem.X * scale, V), (problem.X, V * scale))
    )
    for scaled in (in_x, in_v):
        assert scaled.lower / scale == pytest.approx(bracket.lower, rel=1e-12)
        assert scaled.upper / scale == pytest.approx(bracket.upper, rel=1e-12)


def test_other_norms_are_refused_by_what_holds_for_weight_decay_only() -> None:
    problem = ReluProblem(torch.eye(3).double(), Datafit(Squared(), torch.ones(3, 1).double()), 0.3, NORMS["linf"])
    with pytest.raises(ValueError, match="weight decay"):
        ReluPlan(problem.X).train(problem)


@pytest.mark.parametrize("solver", ["auto", *(name for name in RELU_SOLVERS if name != "closed_form")])
def test_targets_of_zero_give_the_zero_network(solver: str) -> None:
    X = _problem().X
    problem = ReluProblem(X, Datafit(Squared(), torch.zeros(len(X), 1).double()), 0.1)
    certificate = ReluPlan(X).train(problem, solver=solver).certificate
    assert certificate.primal == certificate.relative_gap == 0


def test_frank_wolfe_keeps_its_limits() -> None:
    problem = _problem()
    solution = ReluPlan(problem.X).train(problem, Limits(1e-9, 30), solver="frank_wolfe")
    assert solution.n_steps <= 30
    assert 0 < solution.certificate.relative_gap <= 1


def _whitened(intercept: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    raw = torch.randn(9, 14, generator=generator, dtype=torch.float64)
    X = torch.tensor(ZCAWhitening().fit_transform(raw.numpy()))
    return X, torch.eye(3, dtype=torch.float64)[torch.arange(9) % 3]


def test_auto_uses_the_formula_on_whitened_data() -> None:
    X, Y = _whitened()
    problem = ReluProblem(X, Datafit(Squared(), Y), 0.5)
    done = ReluPlan(X).train(problem)
    assert done.solver == "closed_form"
    assert done.certificate.relative_gap <= 1e-9
    assert done.certificate.primal == pytest.approx(3 * (0.5 * math.sqrt(3) - 0.125), rel=1e-9)


def test_the_formula_says_why_it_does_not_apply() -> None:
    problem = _problem()
    with pytest.raises(ValueError, match="Use solver='auto'"):
        ReluPlan(problem.X).train(problem, solver="closed_form")


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_beyond_enumeration_search_and_relaxation_give_a_sound_finite_gap(loss: str) -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(14, 7, generator=generator, dtype=torch.float64)
    Y = torch.sign(torch.randn(14, 1, generator=generator, dtype=torch.float64))
    problem = ReluProblem(X, Datafit(LOSSES[loss](), Y, intercept=True), 1.0)
    done = ReluPlan(X, "search", 64).train(problem, Limits(1e-3))
    certificate = done.certificate
    assert certificate.scope is Scope.ALL_PATTERNS
    assert 0 < certificate.dual <= certificate.primal
    assert done.search_gap <= 1e-3


def test_which_data_are_enumerated_without_being_asked() -> None:
    assert affordable(100_000, 2)
    assert affordable(250, 3)
    assert affordable(40, 4)
    assert not affordable(569, 4)
    assert face_count(100, 3) == 9902 + 100 * 198


def test_a_named_method_is_not_replaced_by_another() -> None:
    X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), X[:, :1].abs()), 5.0)
    solution = ReluPlan(X, "search", 32).train(problem, Limits(1e-2, 5), solver="frank_wolfe")
    assert solution.solver.split("+")[0] == "frank_wolfe"
    assert "column_generation" not in solution.solver
    assert 0 < solution.certificate.dual <= solution.certificate.primal


@pytest.mark.parametrize("solver", ["auto", *sorted({*RELU_SOLVERS} - {"closed_form"})])
def test_samples_of_zero_have_the_zero_network(solver: str) -> None:
    """Reduced to their rank, such samples have no column left; the soundness campaign found a method that failed."""
    X, Y = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), Y), 0.1)
    solution = ReluPlan(X).train(problem, Limits(1e-2), solver=solver)
    assert solution.certificate.primal == pytest.approx(0.5 * float(Y.square().sum()))
    assert solution.certificate.relative_gap <= 1e-2


@pytest.mark.parametrize(("seconds", "left"), [(1.0, 4.0), (8.0, MOMENT)])
def test_a_search_with_a_limit_of_time_leaves_half_of_it_for_the_proof(seconds: float, left: float) -> None:
    problem = _problem(20, 8)
    plan = ReluPlan(problem.X)
    stages = plan._before_proof(plan._search(problem), Limits(1e-6, max_time=10), 10.0)
    assert next(stages).limits == Limits(1e-3, max_time=10)
    assert stages.send(SimpleNamespace(seconds=seconds)).limits == Limits(1e-6, max_time=left)


def _proved(problem: ReluProblem, limits: Limits, seconds: float) -> tuple[Plan, SimpleNamespace]:
    """The stages of a proof, and the fake network that a training of so many seconds has ended with."""
    found = SimpleNamespace(seconds=seconds, certificate=_gap(1.0), dual_point=problem.datafit.targets)
    return ReluPlan(problem.X, "search")._proofs(problem, limits, "auto", (), found, None), found


def _gap(gap: float) -> SimpleNamespace:
    return SimpleNamespace(within=lambda tol: gap <= tol)


@pytest.mark.parametrize(("seconds", "given"), [(0.1, 0.4), (4.0, 2.0), (300.0, 10.0)])
def test_a_proof_without_a_limit_of_time_takes_half_of_what_training_took(seconds: float, given: float) -> None:
    stage = next(_proved(_problem(20, 8), Limits(1e-6), seconds)[0])
    assert isinstance(stage.solver, JointProductBound)
    assert stage.solver.seconds == given
    assert stage.limits.max_time is None


def test_a_proof_with_a_limit_of_time_takes_what_training_has_left() -> None:
    stage = next(_proved(_problem(20, 8), Limits(1e-6, max_time=10), 4.0)[0])
    assert isinstance(stage.solver, JointProductBound)
    assert stage.solver.seconds is None
    assert stage.limits.max_time == 6.0


def _simplices(oracle: object) -> int:
    return (oracle.inner if isinstance(oracle, Pooled) else oracle).max_simplices  # type: ignore[attr-defined]


@pytest.mark.parametrize(("left", "follows"), [(0.9, JointProductBound), (0.3, ColumnGeneration)])
def test_long_queries_on_the_sphere_follow_a_short_one_that_promises_much(left: float, follows: type) -> None:
    stages, found = _proved(_problem(20, 3), Limits(1e-6), 4.0)
    quick = next(stages).solver
    assert isinstance(quick, DualPoints)
    assert _simplices(quick.oracle) == PROOFS.tried
    found.certificate, found.seconds = _gap(left), 4.5
    stage = stages.send(found)  # type: ignore[arg-type]
    assert isinstance(stage.solver, follows)
    if isinstance(stage.solver, JointProductBound):
        assert stage.solver.seconds == 1.5
        return
    assert isinstance(stage.solver, ColumnGeneration)
    assert _simplices(stage.solver.oracle) > 10 * PROOFS.tried
    assert stage.limits.max_time == PROOFS.sphere
    found.certificate, found.seconds = _gap(1e-3), 14.5
    with pytest.raises(StopIteration):  # within a hundredth the product bound has nothing to add
        stages.send(found)  # type: ignore[arg-type]


def test_with_a_limit_of_time_the_sphere_is_cut_at_once() -> None:
    stage = next(_proved(_problem(20, 3), Limits(1e-6, max_time=10), 4.0)[0])
    assert isinstance(stage.solver, ColumnGeneration)
    assert stage.limits.max_time == 6.0


def test_a_search_beyond_the_ranks_of_the_sphere_goes_on_to_a_tolerance_below_the_default() -> None:
    problem = _problem(20, 7)
    plan = ReluPlan(problem.X, "search", 16)
    problem = problem.with_beta(0.05 * plan.beta_max(problem))
    usual, wanted = (plan.train(problem, Limits(tol), prove=False).search_gap for tol in (1e-4, 1e-7))
    assert usual is not None
    assert wanted is not None
    assert wanted <= 1e-7 < usual <= 1e-3
