"""Oracles for networks on patches: max |V^T L[(X u)_+]|_F, the dual's constraint in BM (23), (130) and (136)."""

from fractions import Fraction
from functools import partial
from math import inf

import pytest
import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L1, L2, LINF, Norm
from bidual.operators.patches import Convolution, ImagePatches, Patches, TokenPairs
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.papers.methods.norm_oracles import NormFaces
from bidual.polar import (
    DiagonalBound,
    Faces,
    LocalSearch,
    Pooled,
    RidgeSearch,
    Sphere,
    SteepestNeurons,
    oracle_for,
    steepness,
)
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.testing import own_checks_only
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal
from helpers.polar_cases import brute_force
from oracles.explicit_readouts import Explicit, explicit_tokens, image_rows, pooled_readout, window_averages


def with_zeros() -> Tensor:
    """Padded by more than a filter: zero patches; and an image that comes twice, up to its targets."""
    return normal(4, 1, 4)[[0, 1, 2, 2]]


IMAGES = {
    "convolution": (normal(4, 1, 5), Convolution.of(1, 2, pooling=(2,))),
    "matrix": (normal(4, 1, 5), Convolution.of(1, 2, pooling=normal(3, 4, seed=5))),
    "channels": (normal(2, 3, 4), Convolution.of(1, 1)),
    "repeats and zeros": (with_zeros(), Convolution.of(1, 2, padding=2, pooling=(7,))),
}
TOKENS = {"every token": TokenPairs(normal(2, 2, 2), False), "average": TokenPairs(normal(2, 3, 2), True)}
CASES: dict[str, Patches] = {name: ImagePatches(*given) for name, given in IMAGES.items()} | TOKENS
every_case = pytest.mark.parametrize("name", CASES)


def explicit_of(name: str) -> Explicit:
    patches = CASES[name]
    if isinstance(patches, TokenPairs):
        return explicit_tokens(patches.X, patches.average)
    X, c = IMAGES[name]
    P = c.pooling if isinstance(c.pooling, Tensor) else window_averages(patches.map, c.grid)
    rows = image_rows(X, c.kernel_size, c.stride, c.padding, c.dilation)
    return Explicit(rows, pooled_readout(P, len(X)))


def dual_point(patches: Patches, c: int = 2) -> Tensor:
    return normal(patches.n_predictions, c, seed=9)


MAKERS = {
    "Faces": Faces,
    "Sphere": partial(Sphere, tol=1e-4),
    "DiagonalBound": partial(DiagonalBound, steps=10),
    "LocalSearch": LocalSearch,
    "RidgeSearch": RidgeSearch,
}
every_maker = pytest.mark.parametrize("maker", MAKERS)


@every_case
@every_maker
def test_the_bracket_holds_every_neuron(name, maker):
    """upper >= |V^T L[(X u)_+]|_F for 20,000 random u of length one; lower is attained by a neuron that is listed."""
    patches, explicit = CASES[name], explicit_of(name)
    V, oracle = dual_point(patches), Pooled(patches, MAKERS[maker])
    peaks = oracle.steepest(V)
    steepest = float(explicit.steepness(V, torch.nn.functional.normalize(normal(20_000, patches.width, seed=3))).max())
    assert peaks.bracket.upper >= steepest * (1 - 1e-12)
    assert peaks.bracket.lower <= peaks.bracket.upper
    assert oracle.proves is oracle.inner.proves
    if not oracle.proves:
        assert peaks.bracket.upper == inf
    if len(peaks.neurons):
        found = explicit.steepness(V, peaks.neurons)
        torch.testing.assert_close(found, peaks.values, rtol=1e-10, atol=1e-12)
        assert float(found.max()) == pytest.approx(peaks.bracket.lower, rel=1e-10)
        torch.testing.assert_close(torch.linalg.vector_norm(peaks.neurons, dim=1), peaks.values.new_ones(len(found)))


@every_case
@pytest.mark.parametrize("c", [1, 2])
def test_faces_are_exact(name, c):
    """The bracket is narrow, and it is that of the rows at L* V: against brute force where the rank allows it."""
    patches = CASES[name]
    V = dual_point(patches, c)
    bracket = Pooled(patches, Faces).steepest(V).bracket
    assert bracket.upper <= bracket.lower * (1 + 1e-6)
    if patches.width <= 3:
        best = brute_force(patches.rows(), patches.spread(V))
        assert bracket.lower == pytest.approx(best, rel=1e-6)


@every_case
def test_a_sphere_agrees_with_faces(name):
    V = dual_point(CASES[name])
    exact, cut = (
        Pooled(CASES[name], Faces).steepest(V).bracket,
        Pooled(CASES[name], MAKERS["Sphere"]).steepest(V).bracket,
    )
    assert cut.upper >= exact.lower * (1 - 1e-12)
    assert cut.upper <= exact.upper * (1 + 2e-4)


@every_case
def test_steepness_of_the_rows_is_that_of_the_readout(name):
    """|V^T L[(X u)_+]|_F = |(L* V)^T (X u)_+|_2: what makes networks on patches plain ones on rows."""
    patches, explicit = CASES[name], explicit_of(name)
    V, neurons = dual_point(patches), normal(50, patches.width, seed=4)
    units = torch.nn.functional.normalize(neurons)
    found = steepness(patches.rows(), patches.spread(V), neurons)
    torch.testing.assert_close(found, explicit.steepness(V, units), rtol=1e-11, atol=1e-12)


@every_case
def test_merging_equal_patches_changes_nothing(name):
    """The oracle of all rows, repeats and zeros included, against that of the distinct ones."""
    patches = CASES[name]
    V = dual_point(patches)
    merged, plain = Pooled(patches, Faces).steepest(V), Faces(patches.rows()).steepest(patches.spread(V))
    assert merged.bracket.lower == pytest.approx(plain.bracket.lower, rel=1e-9)
    assert merged.bracket.upper == pytest.approx(plain.bracket.upper, rel=1e-6)


def test_equal_patches_are_one_row():
    """Three images of four different patches and one of zeros; the fourth image repeats the third."""
    patches = CASES["repeats and zeros"]
    oracle = Pooled(patches, Faces)
    assert patches.n_rows == 4 * 7
    assert len(oracle.X) == 3 * 5 + 1
    assert oracle.is_for(patches.rows())
    assert not oracle.is_for(oracle.X)


def test_a_threshold_stops_early_and_stays_sound():
    patches = CASES["convolution"]
    V, oracle = dual_point(patches), Pooled(patches, Faces)
    top = oracle.steepest(V).bracket.lower
    assert oracle.steepest(V, above=2 * top).bracket.upper <= 2 * top * (1 + 1e-6)
    assert oracle.steepest(V, above=0.5 * top).bracket.lower == pytest.approx(top, rel=1e-9)


@every_case
@pytest.mark.parametrize("extra", [-1, 1])
def test_dual_points_of_another_length_are_refused(name, extra):
    patches = CASES[name]
    oracle = Pooled(patches, Faces)
    with pytest.raises(ValueError, match=rf"V must have one row per prediction \({patches.n_predictions}\)"):
        oracle.steepest(normal(patches.n_predictions + extra, 2))
    with own_checks_only(), pytest.raises(ValueError, match="V must have one row per prediction"):
        oracle.steepest(normal(patches.n_predictions))
    if patches.n_rows != patches.n_predictions:
        with pytest.raises(ValueError, match="V must have one row per prediction"):
            oracle.steepest(normal(patches.n_rows, 2))


def test_without_a_readout_it_is_the_oracle_itself():
    X = normal(5, 2)
    assert isinstance(oracle_for(X, None, Faces), Faces)
    assert isinstance(oracle_for(X, CASES["convolution"], Faces), Pooled)


def problem_on(patches: Patches) -> ReluProblem:
    return ReluProblem.on(patches, Datafit(Squared(), dual_point(patches)), 0.1)


X1, PAIRS = normal(4, 1, 5), normal(3, 1, 5).reshape(3, 5, 1)
OTHERS: dict[str, tuple[Patches, Patches]] = {
    "other images": (
        ImagePatches(X1, Convolution.of(1, 2, pooling=(2,))),
        ImagePatches(X1 + 1e-9, Convolution.of(1, 2, pooling=(2,))),
    ),
    "another pooling of as many": (
        ImagePatches(X1, Convolution.of(1, 2, pooling=(2,))),
        ImagePatches(X1, Convolution.of(1, 2, pooling=normal(2, 4))),
    ),
    "another grid": (
        ImagePatches(X1, Convolution.of(1, 2, pooling=(2,))),
        ImagePatches(X1, Convolution.of(1, 2, pooling=(4,))),
    ),
    "another stride": (
        ImagePatches(X1, Convolution.of(1, 3)),
        ImagePatches(X1, Convolution.of(1, 3, stride=2)),
    ),
    "a bias": (ImagePatches(X1, Convolution.of(1, 2)), ImagePatches(X1, Convolution.of(1, 2), bias=True)),
    "averaged tokens": (TokenPairs(PAIRS, False), TokenPairs(PAIRS, True)),
    "other tokens": (TokenPairs(PAIRS, True), TokenPairs(-PAIRS, True)),
}


@pytest.mark.parametrize(("mine", "other"), OTHERS.values(), ids=OTHERS)
def test_oracles_for_other_patches_are_refused(mine, other):
    """-X has the rows of X where they are products of tokens, but another readout."""
    problem = problem_on(mine)
    patterns = torch.ones(1, mine.n_rows, dtype=torch.bool)
    for oracle in (Pooled(other, Faces), Faces(mine.rows())):
        with pytest.raises(ValueError, match=r"was made for other samples .* make it by problem\.oracle\(Faces\)"):
            problem.check_oracle(oracle)
        with pytest.raises(ValueError, match="was made for other samples"):
            solve(problem, ColumnGeneration(oracle), Limits(1e-6))
        with pytest.raises(ValueError, match="was made for other samples"):
            ConeProgram.of(problem, patterns, 1, oracle=oracle)


def test_oracles_for_the_same_patches_are_taken():
    """By content: another object, or the matrix of the same windows."""
    grid = ImagePatches(X1, Convolution.of(1, 2, pooling=(2,)))
    matrix = ImagePatches(X1.clone(), Convolution.of(1, 2, pooling=window_averages((4,), (2,))))
    for one, other in ((grid, matrix), (matrix, grid), (grid, grid)):
        problem_on(one).check_oracle(Pooled(other, Faces))
        problem_on(one).check_oracle(problem_on(other).oracle(Faces))


def test_a_plain_problem_refuses_a_pooled_oracle():
    """Even where the readout is trivial, dual points have another meaning in general."""
    patches = ImagePatches(X1, Convolution.of(1, 5))
    plain = ReluProblem(patches.rows(), Datafit(Squared(), dual_point(patches)), 0.1)
    with pytest.raises(ValueError, match="was made for other samples"):
        plain.check_oracle(Pooled(patches, Faces))


def test_problems_on_patches_check_their_rows_and_targets():
    patches = CASES["convolution"]
    good, V = patches.rows(), dual_point(patches)
    with pytest.raises(ValueError, match=r"X must be readout\.rows\(\), \(16, 2\), got \(15, 2\)"):
        ReluProblem(good[:-1], Datafit(Squared(), V), 0.1, readout=patches)
    with pytest.raises(ValueError, match="the readout makes 4 rows of predictions, there are 16 of targets"):
        ReluProblem.on(patches, Datafit(Squared(), normal(16, 2)), 0.1)


UNIT = 2.0**-53


def patches_with_repeats() -> ImagePatches:
    return ImagePatches(normal(4, 1, 4)[[0, 1, 2, 2]], Convolution.of(1, 2, padding=2, pooling=(7,)))


def test_the_allowance_for_rounding_is_small_and_none_for_nothing() -> None:
    patches = patches_with_repeats()
    oracle, V = Pooled(patches, Faces), normal(patches.n_predictions, 2, seed=1)
    bracket = oracle.steepest(V).bracket
    assert 0 < oracle._of_readout(V) <= 1e-12 * bracket.upper
    assert oracle._of_readout(0 * V) < 1e-300


@pytest.mark.parametrize("count", [20, 2000])
def test_equal_patches_that_are_added_up_are_all_paid_for(count: int) -> None:
    """Copies of one image have one row, whose dual is a sum of ``count`` numbers, each off by the next rounding."""
    oracle = Pooled(ImagePatches(torch.ones(count, 1, 1).double(), Convolution.of(1, 1)), Faces)
    V = torch.ones(count, 1).double()
    assert len(oracle.X) == 1
    assert count * 2.0**-53 * count <= oracle._of_readout(V) <= (count + 100) * 2.0**-53 * count


@pytest.mark.parametrize("norms", [(L1, L2), (L2, LINF)])
def test_other_norms_are_refused(norms: tuple[Norm, Norm]) -> None:
    with pytest.raises(ValueError, match="Euclidean"):
        Pooled(patches_with_repeats(), lambda X: NormFaces(X, *norms))


def test_it_is_for_all_rows_in_any_precision_and_for_no_others() -> None:
    patches = ImagePatches(normal(3, 1, 4).round(), Convolution.of(1, 2, pooling=(3,)))
    oracle, rows = Pooled(patches, Faces), patches.rows()
    assert oracle.is_for(rows) is True
    assert oracle.is_for(rows.float()) is True
    assert not any(oracle.is_for(other) for other in (2 * rows, rows[:-1], rows.flip(0), rows[:, :1]))


def exact_pooled(patches: ImagePatches, V: Tensor, u: Tensor) -> Fraction:
    """|V^T L[(X u)_+]|^2 of one readout in fractions."""
    weights = [[Fraction(x) for x in row] for row in patches.pooling.listed.tolist()]
    hidden = [
        max(sum(Fraction(a) * Fraction(b) for a, b in zip(x, u.tolist(), strict=True)), 0) for x in rows_of(patches)
    ]
    size, total = patches.per_sample[0], Fraction(0)
    for a in range(len(weights)):
        for k in range(V.shape[1]):
            seen = (sum(w * h for w, h in zip(weights[a], hidden[i * size :], strict=False)) for i in range(len(V)))
            total += sum(Fraction(v) * s for v, s in zip(V[:, k].tolist(), seen, strict=True)) ** 2
    return total


def rows_of(patches: ImagePatches) -> list[list[float]]:
    return patches.rows().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_no_neuron_is_above_the_bound_in_fractions(dtype: torch.dtype, seed: int) -> None:
    """Duals of equal images that cancel but for their last digits; patches of single precision too."""
    images = normal(3, 1, 5, seed=seed).to(dtype)[[0, 1, 2, 0, 1, 2]]
    patches = ImagePatches(images, Convolution.of(1, 2, padding=1, pooling=(3,)))
    V = normal(3, 2, seed=seed + 5).repeat(2, 1)
    V[3:] *= -(1 + 1e-12 * normal(3, 2, seed=seed))
    found = Pooled(patches, Faces).steepest(V)
    for u in torch.cat([found.neurons[:3], normal(3, 2, seed=seed)]).round(decimals=8):
        assert exact_pooled(patches, V, u) <= Fraction(found.bracket.upper) ** 2 * sum(
            Fraction(x) ** 2 for x in u.tolist()
        )


def test_seeds_and_the_threshold_reach_the_inner_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    patches = CASES["matrix"]
    oracle, asked = Pooled(patches, Faces), list[tuple[float, Tensor | None]]()
    steepest = oracle.inner.steepest

    def told(V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        asked.append((above, seeds))
        return steepest(V, above, seeds)

    monkeypatch.setattr(oracle.inner, "steepest", told)
    seeds = normal(2, patches.width)
    found = oracle.steepest(dual_point(patches), 0.5, seeds)
    assert asked == [(0.5, seeds)]
    given = (oracle.merged(dual_point(patches)), 0.25, seeds)
    monkeypatch.setattr(oracle.inner, "_steepest", lambda *parts: found if parts == given else None)
    assert oracle._steepest(*given) is found  # for duals that are merged and scaled already


def test_dual_points_of_single_precision_are_merged_in_double() -> None:
    patches = CASES["repeats and zeros"]
    oracle, V = Pooled(patches, Faces), dual_point(patches).float()
    assert oracle.merged(V).dtype == torch.float64
    assert torch.equal(oracle.merged(V), oracle.merged(V.double()))
