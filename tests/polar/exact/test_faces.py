"""The exact oracle against brute force cone by cone, and the search that must never pass for one."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces, LocalSearch, SteepestNeurons, steepness
from bidual.problems.certificate import Scope, certify, judge
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.testing import own_checks_only
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal
from oracles.pattern_oracle import steepest


def one_hot(n: int, c: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.arange(n) % c, c).double()


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def check_peaks(X: Tensor, V: Tensor, peaks: SteepestNeurons) -> None:
    """The listed directions are unit vectors, best first, with the values that they have; the best is ``lower``."""
    assert torch.allclose(peaks.values, steepness(X, V, peaks.neurons), rtol=1e-12, atol=1e-12 * peaks.bracket.lower)
    assert torch.allclose(torch.linalg.vector_norm(peaks.neurons, dim=1), X.new_ones(()), rtol=1e-9)
    assert bool((peaks.values.diff() <= 0).all())
    if len(peaks.values):
        assert float(peaks.values[0]) == peaks.bracket.lower


def check_exact(X: Tensor, V: Tensor, best: float | None = None) -> float:
    """The bracket holds the brute-force value and is narrow, for every ``above``; the search stays below it."""
    best = steepest(X.numpy(), V.numpy()) if best is None else best
    oracle = Faces(X)
    size = float(torch.linalg.vector_norm(X) * torch.linalg.vector_norm(V))
    for above in (0.0, 0.5 * best, best, 2.0 * best):
        peaks = oracle.steepest(V, above)
        assert peaks.bracket.upper >= best * (1 - 1e-12)
        assert peaks.bracket.upper <= max(best, above) * (1 + 1e-6) + 1e-9 * size
        assert peaks.bracket.lower <= peaks.bracket.upper
        if above < best:
            assert peaks.bracket.lower >= best * (1 - 1e-6) - 1e-9 * size
        check_peaks(X, V, peaks)
    found = LocalSearch(X, starts=30).steepest(V)
    check_peaks(X, V, found)
    assert found.bracket.lower <= oracle.steepest(V).bracket.upper
    assert found.bracket.upper in (0.0, inf)
    return best


@pytest.mark.parametrize("c", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "r"), [(8, 1), (8, 2), (7, 3), (6, 4), (3, 5)])
def test_generic_data(n: int, r: int, c: int) -> None:
    check_exact(normal(n, r, seed=c), normal(n, c, seed=100 + r))


WHITE = torch.linalg.svd(normal(7, 3), full_matrices=False)[0]
DEGENERATE: dict[str, tuple[Tensor, Tensor]] = {
    "repeated rows": (normal(3, 3).repeat(2, 1), normal(6, 2, seed=1)),
    "opposite rows": (torch.cat([normal(3, 3), -normal(3, 3)]), normal(6, 3, seed=1)),
    "zero rows": (torch.cat([normal(4, 3), torch.zeros(2, 3, dtype=torch.float64)]), normal(6, 2, seed=1)),
    "collinear rows": (normal(6, 1) @ normal(1, 3, seed=1), normal(6, 2, seed=2)),
    "rank two in four": (normal(7, 2) @ normal(2, 4, seed=1), normal(7, 3, seed=2)),
    "grid": (matrix([1, 0], [0, 1], [1, 1], [1, -1], [2, 1], [-1, -1]), matrix([1], [1], [-2], [1], [0], [3])),
    "grid in space": (
        matrix([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]),
        matrix([1, 0], [0, 1], [1, 1], [-1, 0], [0, -1], [1, -1]),
    ),
    "identity and one-hot": (torch.eye(4, dtype=torch.float64), one_hot(4, 2)),
    "identity and minus one-hot": (torch.eye(4, dtype=torch.float64), -one_hot(4, 2)),
    "identity and identity": (torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)),
    "whitened and one-hot": (WHITE, one_hot(7, 3)),
    "whitened and orthogonal": (WHITE, WHITE),
    "flat forms": (torch.eye(3, dtype=torch.float64).repeat(2, 1), torch.eye(3, dtype=torch.float64).repeat(2, 1)),
    "nearly flat forms": (torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64) + 1e-9 * normal(3, 3)),
    "all positive": (normal(7, 3).abs(), normal(7, 2, seed=1)),
    "a constant column": (torch.cat([normal(7, 2), torch.ones(7, 1, dtype=torch.float64)], 1), normal(7, 2, seed=1)),
    "one sample": (normal(1, 3), normal(1, 2)),
    "one column": (normal(6, 1), normal(6, 3)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name: str) -> None:
    check_exact(*DEGENERATE[name])


@pytest.mark.parametrize("size", [1e-13, 1e-11, 1e-9, 1e-6])
@pytest.mark.parametrize("name", ["grid", "grid in space", "repeated rows", "flat forms"])
def test_data_close_to_degenerate(name: str, size: float) -> None:
    X, V = DEGENERATE[name]
    check_exact(X + size * normal(*X.shape, seed=5), V + size * normal(*V.shape, seed=6))


def test_closed_forms() -> None:
    eye, counts = torch.eye(6, dtype=torch.float64), torch.tensor([3, 2, 1])
    classes = torch.nn.functional.one_hot(torch.repeat_interleave(torch.arange(3), counts)).double()
    assert check_exact(eye, classes, best=3**0.5) > 0  # the largest class
    assert check_exact(eye, -torch.ones(6, 1, dtype=torch.float64), best=6**0.5) > 0
    assert check_exact(2 * eye, torch.tensor([[1.0, -1.0, 2.0, 0, 0, 0]], dtype=torch.float64).T, best=2 * 5**0.5) > 0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_small_integers(data: st.DataObject) -> None:
    n, d, c = (data.draw(st.integers(1, most)) for most in (5, 3, 3))
    integers = st.integers(-2, 2).map(float)
    X = data.draw(arrays(np.float64, (n, d), elements=integers).filter(np.any))
    V = data.draw(arrays(np.float64, (n, c), elements=integers).filter(np.any))
    check_exact(torch.tensor(X), torch.tensor(V))


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("name", ["grid in space", "whitened and one-hot", "zero rows"])
def test_the_scale_of_the_data_is_only_a_factor(name: str, scale: float) -> None:
    X, V = DEGENERATE[name]
    best = steepest(X.numpy(), V.numpy())
    check_exact(scale * X, V, scale * best)
    check_exact(X, scale * V, scale * best)
    check_exact(scale * X, scale * V, scale**2 * best)


def test_rows_of_very_different_lengths() -> None:
    X = normal(6, 3) * torch.tensor([1e6, 1e-6, 1.0, 1e3, 1e-3, 1.0], dtype=torch.float64)[:, None]
    check_exact(X, normal(6, 2, seed=1))
    check_exact(X, normal(6, 2, seed=1) / torch.linalg.vector_norm(X, dim=1, keepdim=True))


@pytest.mark.parametrize("oracle", [Faces, LocalSearch])
def test_nothing_to_climb(oracle: type) -> None:
    for X, V in [
        (torch.zeros(3, 2), normal(3, 2)),
        (normal(3, 2), torch.zeros(3, 2)),
        (torch.zeros(3, 0), normal(3, 1)),
    ]:
        peaks = oracle(X.double()).steepest(V.double())
        assert (peaks.bracket.lower, peaks.bracket.upper, len(peaks.values)) == (0.0, 0.0, 0)
    with own_checks_only(), pytest.raises(ValueError, match="one row per sample"):
        oracle(normal(3, 2)).steepest(normal(4, 1))


def test_seeds_are_climbed_from_and_never_lower_the_search() -> None:
    X, V = normal(12, 4), normal(12, 2, seed=1)
    best = Faces(X).steepest(V)
    search = LocalSearch(X, starts=1, seed=1)
    assert search.steepest(V, 0.0, best.neurons[:1]).bracket.lower >= best.bracket.lower * (1 - 1e-12)


class NaiveSearch(LocalSearch):
    """From random starts only, as in the notes (papers-checked, section 5)."""

    def _starts(self, V: Tensor) -> Tensor:
        return torch.randn(self.starts, self.X.shape[1], generator=self._generator, dtype=torch.float64)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return super()._steepest(V, above, None)


def test_what_a_search_found_is_never_an_upper_bound() -> None:
    """De-meaned whitened data, three classes of ten: a search sees a gap of 1e-6 where 3 % are left."""
    n, optimum = 30, 5.246976  # attained by an explicit network
    X = torch.linalg.svd(torch.eye(n, dtype=torch.float64) - 1 / n)[0][:, : n - 1]
    Y = torch.nn.functional.one_hot(torch.arange(n) // 10).double()
    problem = ReluProblem(X, Datafit(Squared(), Y, None, False), 0.5)
    oracle = NaiveSearch(X, starts=20, seed=3)
    done = solve(problem, ColumnGeneration(oracle), Limits(1e-5))
    Z, V = done.Z, done.dual_point
    peaks = oracle.steepest(V)
    believed = judge(done.problem, Z, V, lambda W: max(peaks.bracket.lower, problem.beta), Scope.ALL_PATTERNS)
    assert done.search_gap <= 1e-5
    assert believed.dual > 1.005 * optimum  # a false bound, if one trusted the search
    assert peaks.bracket.upper == inf
    assert done.certificate.dual == certify(done.problem, Z, [V], oracle=oracle).dual == 0
    assert done.certificate.relative_gap == 1
    better = solve(problem, ColumnGeneration(LocalSearch(X)), Limits(1e-5))
    assert better.certificate.primal == pytest.approx(optimum, rel=1e-5)
