"""Ascents along ridges: closed forms, bounded least squares of scipy, precision, and that they never fall."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from bidual.polar.ascents import _questions, ascend, objective, shortest, unit
from helpers.draws import normal


def matrix(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_objective_and_its_direction() -> None:
    values, g = objective(torch.eye(2).double(), matrix([[3, 0], [0, 4]]), matrix([[1, 1], [-1, 0.5], [-1, -1]]))
    assert values.tolist() == pytest.approx([5, 2, 0])
    assert g.numpy() == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))


def test_without_falling_rows_an_ascent_goes_along_the_slope() -> None:
    X, V, U = normal(5, 3), normal(5, 1, seed=1).abs(), normal(4, 3, seed=2)
    slope = ((X @ U.T > 0) * V).T @ X
    torch.testing.assert_close(ascend(X, V, U, rounds=1), unit(slope))


def test_the_shortest_sum_stops_on_the_ridge() -> None:
    """b = (1, 1) less t (0, 3): the shortest has t = 1/3, on the ridge where the second row vanishes."""
    X, b = matrix([[0, 3]]), matrix([[1, 1]])
    a, t = shortest(X, b, torch.ones(1, 1).double(), torch.tensor([1 / 9]).double(), torch.ones(1, 1).double(), 100)
    assert a.tolist()[0] == pytest.approx([1, 0], abs=1e-9)
    assert float(t) == pytest.approx(1 / 3)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_sum_is_that_of_bounded_least_squares(seed: int, c: int) -> None:
    X, V, U = normal(9, 4, seed=seed), normal(9, c, seed=seed + 5), unit(normal(3, 4, seed=seed + 9))
    g = objective(X, V, U)[1]
    for some, question in _questions(X, V, g):
        b, most, t = question._around(U[some], g[some])
        a, _ = shortest(question.falling, b, most, question.speeds, t, 2000)
        for k, limits in enumerate(most.expand(len(some), -1)):
            rows = question.falling[limits > 0].numpy()
            best = lsq_linear(rows.T, b[k].numpy(), (0, limits[limits > 0].numpy()), tol=1e-14).x
            assert a[k].numpy() == pytest.approx(b[k].numpy() - best @ rows, abs=1e-6)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("c", [1, 2])
def test_ascent_never_falls_and_keeps_directions_unit(c: int, dtype: torch.dtype, digits: float) -> None:
    X, V, U = (part.to(dtype) for part in (normal(8, 3), normal(8, c, seed=1), normal(30, 3, seed=2)))
    given, found = U.clone(), ascend(X, V, U)
    before, after = (objective(*(part.double() for part in (X, V, unit(W))))[0] for W in (U, found))
    assert bool((after >= before * (1 - digits)).all())
    assert found.dtype is dtype
    assert found.norm(dim=1).tolist() == pytest.approx([1.0] * 30, rel=digits)
    assert torch.equal(U, given)


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("numbers", [1, 20])
def test_ascent_gives_every_start_the_same_however_many_there_are(
    numbers: int, c: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, V, U = normal(8, 3), normal(8, c, seed=1), normal(6, 3, seed=2)
    found = ascend(X, V, U)
    torch.testing.assert_close(torch.cat([ascend(X, V, u[None]) for u in U]), found, rtol=0, atol=1e-12)
    monkeypatch.setattr("bidual.polar.ascents._NUMBERS", numbers)
    torch.testing.assert_close(ascend(X, V, U), found, rtol=0, atol=1e-12)


def test_more_rounds_of_ascent_climb_on() -> None:
    X, V, U = normal(60, 12), normal(60, 1, seed=1), normal(20, 12, seed=2)
    none, one, six = (objective(X, V, ascend(X, V, U, rounds, 30))[0] for rounds in (0, 1, 6))
    for below, above in ((none, one), (one, six)):
        assert bool((below <= above * (1 + 1e-12)).all())
        assert float((above > below * (1 + 1e-6)).double().mean()) > 0.5


def test_rows_that_may_go_far_go_fast() -> None:
    """Slopes over six orders of magnitude: steps of one length for all rows leave the ridge unfinished."""
    X, V = normal(200, 6), normal(200, 1, seed=1) * torch.logspace(-3, 3, 200, dtype=torch.float64)[:, None]
    U = normal(40, 6, seed=2)
    some, question = _questions(X, V, objective(X, V, unit(U))[1])[0]
    b, most, t = question._around(unit(U)[some], torch.ones(len(some), 1).double())
    level = torch.full_like(
        question.speeds, 1 / float(torch.linalg.eigvalsh(question.falling.T @ question.falling)[-1])
    )
    ours, plain, best = (
        shortest(question.falling, b, most, speeds, t, steps)[0].norm(dim=1)
        for speeds, steps in ((question.speeds, 60), (level, 60), (question.speeds, 5000))
    )
    assert float((ours - best).sum()) < 0.5 * float((plain - best).sum())
