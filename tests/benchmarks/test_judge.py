import numpy as np
import pytest
import torch

from bidual.problems.certificate import certify
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from helpers.race_tools import load
from oracles.cone_oracle import cone_optimum

convex, harness, judging, problems = (load(name) for name in ("convex", "harness", "judge", "problems"))
Spec = problems.Spec
KINDS = [
    Spec(40, 4, 8, c=2),
    Spec(40, 4, 8, c=3, penalty="nuclear"),
    Spec(40, 4, 8, c=3, loss="softmax", penalty="frobenius"),
    Spec(30, 2, 10, c=3, penalty="nuclear", data="spiral", beta=0.01),
    Spec(40, 4, 8, loss="logistic", features="heavy", seed=3),
]


def make_judge(spec):
    arrays = problems.make_arrays(spec)
    return judging.make_judge(spec, arrays, problems.make_betas(spec, arrays))


def answer_of(judge, place, tol):
    problem = convex.gated_problem(judge.spec, judge.arrays, judge.betas[place])
    return problem, solve_auto(problem, Limits(tol)).Z.to(torch.float64)


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.label)
def test_our_own_points_are_judged_as_they_are_certified(spec):
    judge = make_judge(spec)
    problem, Z = answer_of(judge, 0, 1e-3)
    primals, certificate = judge.look({"Z": Z.numpy()[None]}), certify(problem, Z)
    assert primals == pytest.approx((certificate.primal,))
    assert judge.best == pytest.approx([certificate.dual])
    assert judge.gap(primals) == pytest.approx(certificate.relative_gap, abs=1e-12)


def test_everybody_is_measured_by_the_best_dual_of_the_race():
    judge = make_judge(Spec(40, 4, 8))
    loose = judge.look({"Z": answer_of(judge, 0, 1e-1)[1].numpy()[None]})
    alone = judge.gap(loose)
    problem, Z = answer_of(judge, 0, 1e-9)
    judge.look({"Z": Z.numpy()[None]})
    assert judge.gap(loose) < alone
    assert judge.gap(loose) == pytest.approx(1 - certify(problem, Z).primal / loose[0], abs=1e-8)


def test_a_dual_point_that_is_handed_over_counts_only_for_what_it_proves():
    judge = make_judge(Spec(40, 4, 8))
    Z = np.zeros((1, *answer_of(judge, 0, 1e-1)[1].shape))
    primals = judge.look({"Z": Z, "dual": 1e6 * np.ones((1, 40, 1))})
    optimum = judge.look({"Z": answer_of(judge, 0, 1e-9)[1].numpy()[None]})
    assert judge.best[0] <= optimum[0] < primals[0]


def test_a_shorter_answer_belongs_to_the_end_of_the_path():
    judge = make_judge(Spec(40, 4, 8, fraction=0.01, path=3))
    _, Z = answer_of(judge, 2, 1e-9)
    primals = judge.look({"Z": Z.numpy()[None]})
    assert judge.best[:2] == [0.0, 0.0]
    assert judge.gap(primals) <= 1e-8


def test_weights_that_are_not_finite_have_no_gap():
    judge = make_judge(Spec(40, 4, 8))
    assert judge.gap(judge.look({"Z": np.full((1, 8, 4, 1), np.nan)})) == np.inf


def test_cone_duals_are_lower_bounds_and_the_optimum_has_no_gap():
    judge = make_judge(Spec(20, 3, 6, network="relu"))
    beta, active = judge.betas[0], convex.patterns(judge.arrays)
    problem = convex.relu_problem(judge.spec, judge.arrays, beta)
    optimum = cone_optimum(problem, active)
    trials = torch.randn(5, 20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert max(judging.cone_dual(problem, active, V) for V in trials) <= optimum
    task = harness.Task(judge.spec, judge.arrays, tuple(judge.betas), "clarabel")
    primals = judge.look(load("worker_cvxpy").prepare(task, 1e-9)())
    assert primals == pytest.approx((optimum,), rel=1e-6)
    assert judge.gap(primals) <= 1e-6


def test_the_cone_polar_bounds_every_neuron_of_its_cone():
    arrays = problems.make_arrays(Spec(20, 3, 6, network="relu"))
    X, active = torch.from_numpy(arrays.X), convex.patterns(arrays)
    V = torch.from_numpy(arrays.Y)
    inside = torch.from_numpy(arrays.gates / np.linalg.norm(arrays.gates, axis=0))
    assert float((V.T @ (X @ inside).clamp(min=0)).abs().max()) <= judging.cone_polar(X, active, V)


def test_a_network_below_the_optimum_of_its_cones_has_a_gap_too():
    judge = make_judge(Spec(20, 3, 6, network="relu"))
    judge.best = [10.0]
    assert judge.gap([9.0]) == pytest.approx(1 / 9)
