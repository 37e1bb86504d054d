"""Lower bounds that move the dual point: below the exact optimum, near it, for every loss, and checked again later."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bidual
from bidual import ConvexMLPClassifier
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import LINF
from bidual.operators.patches import Convolution, ImagePatches
from bidual.polar.products.helper import Helper
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.runtime.helper_process import HelperProcess
from bidual.solvers.driver import solve
from bidual.testing.loss import example_targets
from bidual.training.relu import product_bound
from bidual.training.relu.dual_coordinates import DualCoordinates
from bidual.training.relu.plan import ReluPlan
from bidual.training.relu.product_bound import JointProductBound, bytes_needed
from bidual.training.relu.start import NetworkStart, predictions_at
from helpers.product_cases import draw


def problem(name: str, c: int = 1, n: int = 14, weighted: bool = False, intercept: bool = True) -> ReluProblem:
    loss = LOSSES[name]()
    Y = example_targets(loss, n, c, torch.Generator().manual_seed(3))
    weight = 0.5 + torch.rand(n, generator=torch.Generator().manual_seed(4), dtype=torch.float64) if weighted else None
    return ReluProblem(draw(n, 3, seed=1), Datafit(loss, Y, weight, intercept), 0.7)


def bounded(problem: ReluProblem, found: Solution, steps: int = 4) -> Solution:
    return solve(problem, JointProductBound(), Limits(1e-9, steps), start=found)


@pytest.mark.parametrize(("name", "weighted"), [*((name, False) for name in sorted(LOSSES)), ("logistic", True)])
def test_every_loss_is_bounded_below_its_optimum(name: str, weighted: bool) -> None:
    task = problem(name, 3 if name == "softmax" else 1, weighted=weighted)
    exact = ReluPlan(task.X, "exact").train(task, Limits(1e-4))
    searched = ReluPlan(task.X, "search").train(task, Limits(1e-4), prove=False)
    found = bounded(task, searched)
    assert found.certificate.dual <= exact.certificate.primal
    assert found.certificate.relative_gap < 0.15


def test_history_rises() -> None:
    task = problem("squared", 2)
    found = bounded(task, ReluPlan(task.X, "search").train(task, prove=False))
    duals = [record.dual for record in found.history if record.solver == "product_bound"]
    assert len(duals) == 4
    assert duals == sorted(duals)


def test_patches_are_bounded() -> None:
    images = draw(12, 1, 5, seed=2)
    patches = ImagePatches(images, Convolution.of(1, 2, stride=1, pooling=(1,)))
    Y = draw(12, 1, seed=3)
    task = ReluProblem.on(patches, Datafit(LOSSES["squared"](), Y, intercept=True), 0.5)
    exact = ReluPlan(task.X, "exact", readout=patches).train(task, Limits(1e-7))
    searched = ReluPlan(task.X, "search", readout=patches).train(task, Limits(1e-5), prove=False)
    found = bounded(task, searched)
    assert found.certificate.dual <= exact.certificate.primal
    assert found.certificate.relative_gap < 0.15


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("intercept", [False, True])
def test_slopes_of_dual_points(name: str, intercept: bool) -> None:
    """Pulled back slopes are differences, also through the intercept that balances V."""
    c = 3 if name == "softmax" else 2
    dual = DualCoordinates(problem(name, c, intercept=intercept).datafit)
    f, G, step = draw(14, c, seed=5), draw(14, c, seed=6), 1e-6
    direction = draw(14, c, seed=7)
    if name in ("hinge", "absolute", "quantile", "huber", "squared_hinge"):
        f = f + 0.0137  # away from kinks of V
    ahead, behind = ((G * dual.point(f + s * direction)).sum() for s in (step, -step))
    torch.testing.assert_close((ahead - behind) / (2 * step), (dual.pull(f, G) * direction).sum(), rtol=1e-4, atol=1e-5)
    if intercept:
        assert float(dual.point(f).sum(0).abs().max()) < 1e-6


def fitted(tmp_path: Path) -> tuple[ConvexMLPClassifier, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(60) > 0.4).astype(int)
    return ConvexMLPClassifier(loss="squared", max_time=5).fit(X, y), X, y


def test_the_witness_is_saved_and_rechecked_without_a_search(tmp_path: Path) -> None:
    model, X, y = fitted(tmp_path)
    assert model.certificate_.witness is not None
    model.save(tmp_path / "model.safetensors")
    again = bidual.load(tmp_path / "model.safetensors").certificate_
    program = _program(model, X, y)
    assert again.recheck(program)
    assert not replace(again, dual=again.dual * 1.01).recheck(program)
    assert not replace(again, polar=again.polar / 2, dual_point=again.dual_point * 2).recheck(program)
    assert not replace(again, witness=again.witness[:1]).recheck(program)
    at = again.witness[0].at
    broken = replace(again.witness[0], at=replace(at, omega=at.omega[1:]))
    assert not replace(again, witness=(broken, *again.witness[1:])).recheck(program)


def _program(model: ConvexMLPClassifier, X: np.ndarray, y: np.ndarray):  # type: ignore[no-untyped-def]
    Y: Tensor = torch.from_numpy(np.where(y == 1, 1.0, -1.0))[:, None]
    rows = torch.cat([torch.from_numpy(X), torch.ones(len(X), 1, dtype=torch.float64)], 1)
    task = ReluProblem(rows, Datafit(LOSSES["squared"](), Y, intercept=True), model.beta_)
    return task.restricted_to(model.architecture_.neurons)


def test_a_proof_that_breaks_down_leaves_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*parts: object) -> None:
        raise torch.linalg.LinAlgError("no eigenvalues")

    monkeypatch.setattr(JointProductBound, "step", broken)
    task = problem("squared", n=40)
    found = ReluPlan(torch.cat([task.X, draw(40, 5)], 1), "search")
    wide = replace(task, X=found.X)
    assert found.train(wide, Limits(1e-9, max_time=0.5)).certificate.primal > 0


def test_cells_may_be_split_until_every_sign_is_known() -> None:
    task = replace(problem("squared", n=4), beta=0.02)
    found = ReluPlan(task.X, "search").train(task, prove=False)
    exact = ReluPlan(task.X, "exact").train(task, Limits(1e-8))
    bound = solve(task, JointProductBound(), Limits(1e-15, max_steps=25, max_time=20), start=found)
    assert bound.certificate.dual <= exact.certificate.primal
    assert bound.certificate.relative_gap < 1e-3


def test_a_helper_process_changes_no_bound_and_ends_with_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(problem("squared"), beta=0.2)
    found = ReluPlan(task.X, "search").train(task, prove=False)
    alone, helper = bounded(task, found), Helper()
    helper.over, helper.process = False, HelperProcess("bidual.polar.products.remote")
    process = helper.process
    assert process.answer(120) == "ready"
    process._ready = True
    monkeypatch.setattr(product_bound, "Helper", lambda deadline: helper)
    shared = bounded(task, found)
    assert process.user is not None
    assert process.process.returncode is not None
    expected = [record.dual for record in alone.history]
    assert [record.dual for record in shared.history] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("where", ["in a step", "between steps"])
def test_an_error_ends_the_helper(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    task = problem("squared")
    found = ReluPlan(task.X, "search").train(task, prove=False)
    helper = Helper()
    helper.over = False
    monkeypatch.setattr(product_bound, "Helper", lambda deadline: helper)
    if where == "in a step":
        monkeypatch.setattr(product_bound.ProductBound, "proofs", interrupt)
    with pytest.raises(KeyboardInterrupt):
        solve(task, JointProductBound(), Limits(1e-9, 2), start=found, callback=interrupt)
    assert helper.over


def test_other_norms_are_refused() -> None:
    task = problem("squared")
    found = ReluPlan(task.X, "search").train(task, prove=False)
    with pytest.raises(ValueError, match="the product bound is for weight decay"):
        solve(replace(task, hidden_norm=LINF), JointProductBound(), start=found)


def test_memory_grows_with_products_of_rows_and_linearly_with_clusters() -> None:
    """One output has signs and clusters beyond 600 rows; ten have none, and products of rows up to 2000."""

    def needed(n: int, c: int) -> int:
        X, Y = draw(n, 3), torch.zeros(n, c, dtype=torch.float64)
        return bytes_needed(ReluProblem(X, Datafit(Squared(), Y), 1.0))

    assert 1.9 <= (needed(40_000, 1) - needed(20_000, 1)) / (needed(20_000, 1) - needed(10_000, 1)) <= 2.1
    assert needed(2000, 10) - needed(1000, 10) > 8 * (2000**2 - 1000**2)
    assert needed(2001, 10) < needed(2000, 10)
    assert needed(601, 1) < needed(600, 1)


def test_cells_are_not_split_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    found = problem("squared")
    joint = product_bound._begun(found, ReluPlan(found.X, "search").train(found, Limits(1e-3), prove=False))
    assert len(joint.split().cells.places) > len(joint.cells.places)
    monkeypatch.setattr(product_bound, "available_bytes", lambda device: 1000)
    assert joint.split() is joint


def test_a_round_after_which_other_cells_are_worse_is_repeated_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found = problem("squared")
    joint = product_bound._begun(found, ReluPlan(found.X, "search").train(found, Limits(1e-3), prove=False)).split()
    asked = []

    def moved_on(self: product_bound.Joint, active: list[int], *rest: Any) -> product_bound.Joint:
        asked.append(active)
        return self if len(active) == len(self.cells.places) else replace(self, f=10 * self.f)

    monkeypatch.setattr(product_bound.Joint, "_moved_on", moved_on)
    monkeypatch.setattr(product_bound, "_ACTIVE", 0.0)
    assert replace(joint, f=10 * joint.f).gap > joint.gap
    assert joint.improved(0.1, 5, 10, math.inf) is joint
    assert [len(active) for active in asked] == [1, len(joint.cells.places)]


def proved_near(task: ReluProblem, share: float) -> tuple[Solution, NetworkStart]:
    """A network, without a proof; and what several rounds of one leave behind for so many times its beta."""
    plan, larger = ReluPlan(task.X, "search"), replace(task, beta=task.beta * share)
    found = bounded(larger, plan.train(larger, prove=False))
    start = NetworkStart(found.neurons, found.Z, found.certificate.dual_point, found.certificate.witness)
    return plan.train(task, prove=False), start


def bound_from(near: NetworkStart | None, task: ReluProblem, found: Solution, steps: int = 1) -> Solution:
    return solve(task, JointProductBound(near=near), Limits(1e-9, steps), start=found)


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge"])
def test_the_multipliers_of_a_neighbouring_beta_prove_at_once_what_takes_rounds(name: str) -> None:
    task = problem(name, n=40)
    found, start = proved_near(task, 1.2)
    cold, warm = bound_from(None, task, found), bound_from(start, task, found)
    exact = ReluPlan(task.X, "exact").train(task, Limits(1e-5)).certificate.primal
    assert warm.certificate.dual <= exact
    assert warm.certificate.relative_gap < 0.7 * cold.certificate.relative_gap
    assert warm.certificate.recheck(found.problem)


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge"])
def test_a_dual_point_is_that_of_its_predictions(name: str) -> None:
    dual = DualCoordinates(problem(name).datafit)
    V = dual.point(draw(14, 1, seed=5))
    f = predictions_at(dual, V)
    assert f is not None
    torch.testing.assert_close(dual.point(f), V)


def test_the_witness_of_other_samples_or_without_numbers_is_not_begun_with() -> None:
    task = problem("squared", n=20)
    found, start = proved_near(task, 1.2)
    plain = bound_from(None, task, found).certificate
    assert start.witness is not None
    at = start.witness[0].at
    broken = [replace(at, omega=at.omega * math.nan), replace(at, omega=at.omega[1:]), replace(at, slack=0 * at.slack)]
    witnesses = [(replace(start.witness[0], at=other), *start.witness[1:]) for other in broken]
    for witness in [*witnesses, start.witness[:1]]:
        again = bound_from(replace(start, witness=witness), task, found).certificate
        assert again.dual == plain.dual
    assert bound_from(start, task, found).certificate.dual != plain.dual


def test_of_a_start_is_kept_what_has_the_shapes_of_the_problem() -> None:
    task = problem("squared", n=20)
    _, start = proved_near(task, 1.2)
    assert start.Z is not None

    def kept(start: NetworkStart, task: ReluProblem) -> list[bool]:
        fitting = start.fitting(task)
        assert fitting is not None
        return [part is not None for part in (fitting.Z, fitting.dual, fitting.witness)]

    assert kept(start, task) == [True, True, True]
    assert kept(start, problem("squared", n=14)) == [True, False, False]
    assert kept(start, problem("squared", 2, n=20)) == [False, False, False]
    assert kept(replace(start, Z=start.Z[1:]), task) == [False, True, True]
    assert replace(start, neurons=start.neurons[:, 1:]).fitting(task) is None


def test_the_first_rounds_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    task, asked = problem("squared"), []
    found = ReluPlan(task.X, "search").train(task, prove=False)
    moved = product_bound.Joint.moved

    def counted(self: product_bound.Joint, width: float, steps: int, deadline: float) -> product_bound.Joint:
        asked.append(steps)
        return moved(self, width, steps, deadline)

    monkeypatch.setattr(product_bound.Joint, "moved", counted)
    bounded(task, found, 5)
    assert asked == [15, 30, 60, 60]


def test_a_proof_without_seconds_has_one_short_round_and_more_while_they_are_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = problem("squared", n=40)
    found = ReluPlan(task.X, "search").train(task, prove=False)

    def rounds(worth: float) -> int:
        monkeypatch.setattr(product_bound, "PROOFS", replace(product_bound.PROOFS, worth=worth))
        done = solve(task, JointProductBound(seconds=0.0), Limits(1e-9, 7), start=found)
        return sum(record.solver == "product_bound" for record in done.history)

    assert rounds(1e-9) == 2
    assert rounds(1.0) > 2


def test_a_round_that_leaves_little_of_the_gap_is_followed_by_another_within_the_limits() -> None:
    until = product_bound._Time(ends=1.0, worth=5.0, limit=3.0)
    assert until.deadline(0.3, 0.2) == 1.0
    assert until.deadline(0.3, 0.05) == 3.0
    assert replace(until, limit=math.inf).deadline(0.3, 0.05) == 5.0
    assert replace(until, ends=9.0, limit=math.inf).deadline(0.3, 0.05) == 9.0
