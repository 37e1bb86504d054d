"""A solver that panics is lost, and its callers go on or report it."""

import clarabel
import numpy as np
import pytest
from scipy import sparse

from bidual.numerics import clarabel as module
from bidual.numerics.clarabel import clarabel_answer
from bidual.papers.methods.least_norms import least_norms
from bidual.training.copositive import relax
from oracles.relu_problems import relu_problem


class PanicException(BaseException):
    """Named as the exception that bindings to Rust raise, which is none of Python's."""


class Panics:
    def __init__(self, *_: object) -> None:
        raise PanicException("Eigval error: Eigen(1)")


class Interrupted(Panics):
    def __init__(self, *_: object) -> None:
        raise KeyboardInterrupt


def interval() -> tuple:
    """min x subject to x >= 1."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    nothing, one = sparse.csc_array((1, 1)), np.ones(1)
    return nothing, one, sparse.csc_array(-np.eye(1)), -one, [clarabel.NonnegativeConeT(1)], settings


def test_an_answer_is_the_solver_s() -> None:
    answer = clarabel_answer(*interval())
    assert not answer.lost
    assert (answer.x[0], answer.z[0], answer.value) == pytest.approx((1.0, 1.0, 1.0), rel=1e-6)
    assert answer.iterations > 0


def test_a_panic_is_no_crash_and_an_interrupt_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.clarabel, "DefaultSolver", Panics)
    answer = clarabel_answer(*interval())
    assert answer.lost
    assert answer.x.shape == answer.z.shape == (1,)
    with pytest.raises(FloatingPointError, match="broke down"):
        least_norms(sparse.csr_array(np.eye(2)), np.ones(2), 2)
    monkeypatch.setattr(module.clarabel, "DefaultSolver", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        clarabel_answer(*interval())


def test_a_relaxation_without_its_solver_proves_less_and_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = relu_problem("squared", 6, 2, 2, seed=6, intercept=True, weighted=True)
    best = relax(problem, form="patterns").dual
    monkeypatch.setattr(module.clarabel, "DefaultSolver", Panics)
    assert 0 <= relax(problem, form="patterns").dual <= best * (1 + 1e-9)
