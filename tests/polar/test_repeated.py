"""Samples that come twice: the same maximum by their distinct rows, and a better bound where it is a relaxation."""

import math

import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L1, L2
from bidual.papers.methods.norm_oracles import NormFaces
from bidual.polar import Faces, Pooled, Repeated, oracle_for
from bidual.polar.products.oracle import ProductBound
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.training.relu.plan import ReluPlan
from helpers.draws import normal

INDEX = torch.tensor([0, 1, 2, 0, 1, 3, 4, 0])
X, V = normal(5, 3)[INDEX], normal(8, 2, seed=1)


def test_the_maximum_is_that_of_all_rows() -> None:
    found, exact = (oracle.steepest(V).bracket for oracle in (Repeated(X, Faces), Faces(X)))
    assert found.lower == pytest.approx(exact.lower, rel=1e-12)
    assert found.upper == pytest.approx(exact.upper, rel=1e-12)


def test_only_rows_that_come_twice_are_merged() -> None:
    assert isinstance(oracle_for(X[:3], None, Faces), Faces)
    assert isinstance(oracle_for(X[:0], None, Faces), Faces)
    found = oracle_for(X, None, Faces)
    assert isinstance(found, Repeated)
    assert isinstance(found, Pooled)
    assert found.is_for(X)
    assert not found.is_for(X.flip(0))
    assert found.X.shape == (5, 3)


def test_what_the_sums_lose_is_paid_for() -> None:
    """1 + 1e-17 - 1 is zero as computed."""
    X, V = torch.ones(3, 1, dtype=torch.float64), torch.tensor([[1.0], [1e-17], [-1.0]], dtype=torch.float64)
    oracle = Repeated(X, Faces)
    assert float(oracle.merged(V)) == 0
    assert 1e-17 <= oracle.steepest(V).bracket.upper <= 1e-14


def test_a_relaxation_gains_where_equal_rows_disagree() -> None:
    X = normal(6, 3).repeat(2, 1)
    V = torch.cat([normal(6, 1, seed=1), -normal(6, 1, seed=1) + 0.1 * normal(6, 1, seed=2)])
    merged, whole = (make.steepest(V).bracket.upper for make in (oracle_for(X, None, ProductBound), ProductBound(X)))
    assert Faces(X).steepest(V).bracket.lower <= merged < 0.97 * whole


def test_dual_points_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"V must have one row per sample \(8\), got shape \(5, 2\)"):
        Repeated(X, Faces).steepest(V[:5])


def test_a_proof_of_merged_rows_is_rechecked() -> None:
    X, Y = normal(20, 8).repeat(2, 1), normal(40, 1, seed=1)
    problem = ReluProblem(X, Datafit(Squared(), Y), 4.0)
    done = ReluPlan(X).train(problem, Limits(1e-4, max_time=3.0))
    witness = done.certificate.witness
    assert witness is not None
    assert all(len(one.at.omega) + len(one.rows) == 20 for one in witness)
    assert math.isfinite(done.certificate.dual)
    assert done.certificate.recheck(done.problem)


def test_rows_stay_as_they_are_in_other_norms() -> None:
    problem = ReluProblem(X, Datafit(Squared(), normal(8, 1, seed=2)), 0.1, hidden_norm=L1, output_norm=L2)
    oracle = problem.oracle(lambda X: NormFaces(X, L1, L2))
    assert isinstance(oracle, NormFaces)
    problem.check_oracle(oracle)


def test_tiny_numbers_that_are_flushed_to_zero_are_paid_for() -> None:
    """V adds up to half the smallest normal number, which is nothing where such numbers are flushed."""
    X = torch.full((2, 1), 1e200, dtype=torch.float64)
    V = torch.tensor([[1.5], [-1.0]], dtype=torch.float64) * 2.0**-1022
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush tiny numbers to zero")
    try:
        upper = Repeated(X, Faces).steepest(V).bracket.upper
    finally:
        torch.set_flush_denormal(False)
    assert upper >= 2.0**-1023 * 1e200


def test_zeros_of_either_sign_are_equal_and_single_precision_is_taken() -> None:
    X = torch.tensor([[0.0, 1.0], [-0.0, 1.0]], dtype=torch.float32)
    oracle = oracle_for(X, None, Faces)
    assert isinstance(oracle, Repeated)
    assert oracle.is_for(X.double())
    assert oracle.steepest(torch.ones(2, 1)).bracket.lower == pytest.approx(2.0)


def test_the_plan_counts_distinct_rows() -> None:
    rows = normal(30, 4)
    assert ReluPlan(rows).exact
    assert ReluPlan(rows.repeat(10, 1)).exact
    assert not ReluPlan(normal(300, 4)).exact
