"""Proved bounds of the steepest sub-network: questions as training asks them, any number of layers and outputs."""

from itertools import combinations, product

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.operators.parallel import as_widths, sub_network_features, sub_network_size
from bidual.polar import Faces, SteepestNeurons
from bidual.polar.subnetworks.base import ParallelOracle, copies
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs, _cone_bound, _principal, _Search
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan

mpmath.mp.dps = 60


def drawn(n: int, d: int, c: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator).double(), torch.randn(n, c, generator=generator).double()


def teacher(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """PR section 4, "Toy dataset"."""
    generator = torch.Generator().manual_seed(seed)
    X, W, w, z = (
        torch.randn(*size, generator=generator).double() for size in ((n, d), (5, d, 3), (5, 3, 1), (5, 1, 1))
    )
    return X, (torch.relu(torch.relu(X @ W) @ w) @ z).sum(0)


class Recorded(ExactParallel):
    """Remembers what it was asked and what it answered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answers: list[tuple[Tensor, float, float, Tensor]] = []

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        found = super().steepest(V, above, seeds)
        self.answers.append((V, above, found.bracket.upper, found.neurons[:5]))
        return found


@pytest.mark.parametrize("seed", [0, 3])
def test_no_answer_in_a_training_is_below_a_sub_network(seed: int) -> None:
    """Near the optimum many networks are equally steep, which random dual points do not show."""
    X, y = teacher(8 if seed else 10, 2, seed)
    trainer = ParallelPlan(X, 3)
    oracle = Recorded(X, 3)
    trainer.__dict__["_priced"] = oracle  # what the cached property would make
    problem = ParallelProblem(X, Datafit(Squared(), y), 1.0, 3)
    trainer.train(problem.with_beta(0.02 * trainer.beta_max(problem)), Limits(1e-4))
    known = torch.cat([neurons for *_, neurons in oracle.answers])
    assert len(oracle.answers) > 2
    for V, above, upper, _ in oracle.answers:
        steep = ParallelSearch(X, 3, starts=500).steepest(V, seeds=known).bracket.lower
        assert max(steep, float((sub_network_features(X, known, (3,)).T @ V).abs().max())) <= max(upper, above)


@pytest.mark.parametrize(
    ("n", "d", "widths"), [(5, 2, (2,)), (6, 2, (3,)), (5, 3, (2, 2)), (4, 2, (2, 2, 2)), (20, 5, (2,))]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_relaxed_bound_holds_for_what_a_search_finds(n: int, d: int, widths: tuple[int, ...], seed: int) -> None:
    X, v = drawn(n, d, 1, seed)
    bracket = RelaxedBound(X, widths).steepest(v).bracket
    found = ParallelSearch(X, widths, starts=2000).steepest(v).bracket.lower
    assert found <= bracket.upper
    assert bracket.lower <= found * (1 + 1e-3)
    if d == 2:
        assert bracket.lower >= float(np.prod(widths)) ** 0.5 * Faces(X).steepest(v).bracket.lower * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_relaxed_bound_is_above_exact_pricing_and_below_the_positive_part(seed: int) -> None:
    X, v = drawn(6, 2, 1, seed)
    exact, bound = ExactParallel(X, 2).steepest(v).bracket, RelaxedBound(X, 2).steepest(v).bracket
    parts = [Faces(X).steepest((sign * v).clamp(min=0)).bracket.upper for sign in (1, -1)]
    assert exact.lower <= bound.upper <= 2**0.5 * max(parts) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_decided_rows_tighten_the_bound_and_never_below_exact_pricing(seed: int) -> None:
    X, v = drawn(8, 2, 1, seed)
    exact = ExactParallel(X, 2).steepest(v).bracket.lower
    bounds = [RelaxedBound(X, 2, nodes=nodes).steepest(v).bracket.upper for nodes in (0, 8, 400)]
    assert exact <= bounds[2] * (1 + 1e-12)
    assert bounds[2] <= bounds[1] * (1 + 1e-9)
    assert bounds[1] <= bounds[0] * (1 + 1e-9)


def test_all_rows_decided_is_the_limit_of_many_units() -> None:
    """N_m / sqrt(m) for m = 1, ..., 4 is at most N_inf, which they approach (notes on PR, Q3)."""
    X, v = drawn(5, 2, 1, 1)
    limit = RelaxedBound(X, 1, nodes=10_000).steepest(v).bracket.upper
    exact = [ExactParallel(X, m).steepest(v).bracket.lower / m**0.5 for m in (1, 2, 4)]
    assert max(exact) <= limit * (1 + 1e-9)
    assert limit <= max(exact) * 1.1


def test_units_of_four_layers_by_brute_force() -> None:
    """All signs, and weights on a grid of directions: the bound is above each of them."""
    X, v = drawn(3, 2, 1, 5)
    upper = RelaxedBound(X, (2, 2)).steepest(v).bracket.upper
    angles = torch.arange(0, 360, 30) * torch.pi / 180
    u = torch.stack([angles.cos(), angles.sin()], 1).double()
    hidden = torch.relu(X @ u.T)
    inner = torch.cat(
        [torch.relu(s * hidden[:, :, None] + t * hidden[:, None]).flatten(1) for s, t in product((1, -1), repeat=2)], 1
    )
    best = max(
        float((torch.relu(s * inner[:, :, None] + t * inner[:, None]).flatten(1).T @ v).abs().max())
        for s, t in product((1, -1), repeat=2)
    )
    assert 0 < best / 2 <= upper  # four units of length 1/2
    assert best / 2 <= ParallelSearch(X, (2, 2), starts=2000).steepest(v).bracket.lower * (1 + 1e-6)


@pytest.mark.parametrize("c", [2, 3])
def test_several_outputs_against_a_grid_of_directions(c: int) -> None:
    X, V = drawn(4, 2, c, c)
    exact = ExactParallel(X, 2)
    bracket = AllOutputs(exact).steepest(V).bracket
    G = torch.randn(60, c, generator=torch.Generator().manual_seed(1)).double()
    steep = max(exact.steepest(V @ (g / g.norm())[:, None]).bracket.lower for g in G)
    assert steep <= bracket.upper
    assert bracket.lower >= steep * (1 - 1e-9)
    assert bracket.upper <= bracket.lower * 1.001
    assert ParallelSearch(X, 2, starts=2000).steepest(V).bracket.lower <= bracket.upper


def test_several_outputs_are_one_where_they_are_multiples() -> None:
    X, v = drawn(5, 2, 1, 0)
    g = torch.tensor([[3.0, 0.0, -4.0]]).double()
    one = ExactParallel(X, 2).steepest(v).bracket
    many = AllOutputs(ExactParallel(X, 2)).steepest(v @ g).bracket
    assert many.upper == pytest.approx(5 * one.upper, rel=1e-6)


def test_many_outputs_have_a_bound_without_cutting() -> None:
    X, V = drawn(5, 2, 6, 2)
    bracket = AllOutputs(RelaxedBound(X, 2)).steepest(V).bracket
    assert ParallelSearch(X, 2).steepest(V).bracket.lower <= bracket.upper <= 10 * bracket.lower


@pytest.mark.parametrize("widths", [(3,), (2, 3), (2, 1, 2)])
def test_copies_have_the_length_of_one_unit_and_the_root_of_their_number(widths: tuple[int, ...]) -> None:
    X, _ = drawn(6, 3, 1, 0)
    u = torch.randn(4, 3, generator=torch.Generator().manual_seed(2)).double()
    trees = copies(u, widths)
    assert trees.shape == (4, sub_network_size(widths, 3))
    torch.testing.assert_close(trees.norm(dim=1), u.norm(dim=1))
    expected = float(np.prod(widths)) ** 0.5 * torch.relu(X @ u.T)
    torch.testing.assert_close(sub_network_features(X, trees, widths), expected)


def test_what_the_bounds_refuse() -> None:
    X, V = drawn(5, 2, 2, 0)
    oracles: list[ParallelOracle] = [RelaxedBound(X, 2), ExactParallel(X, 2)]
    for oracle in oracles:
        with pytest.raises(ValueError, match="is for one output, got 2"):
            oracle.steepest(V)
    with pytest.raises(ValueError, match="is for three layers, one width"):
        ExactParallel(X, (2, 2))
    for widths in ((), 0, (2, 0), 1.5, True):
        with pytest.raises(ValueError, match="widths must be a positive whole number or several"):
            as_widths(widths)


def exact_bound(G: np.ndarray, b: np.ndarray) -> mpf:
    """max of l^T b over l >= 0 with |G^T l| <= 1, by all faces, in 60 digits."""
    best, rows = mpf(0), [[mpf(x) for x in row] for row in G.tolist()]
    for count in range(1, len(b) + 1):
        for face in combinations(range(len(b)), count):
            gram = mpmath.matrix([[mpmath.fdot(rows[i], rows[j]) for j in face] for i in face])
            right = mpmath.matrix([mpf(float(b[i])) for i in face])
            try:
                shares = mpmath.lu_solve(gram, right)
            except ZeroDivisionError:
                continue
            if min(shares) >= 0:
                best = max(best, mpmath.sqrt(mpmath.fdot(shares, right)))
    return best


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-6, 1e-9, 1e-12, 0.0])
@pytest.mark.parametrize("r", [1, 2, 3, 4])
def test_cones_of_any_width_are_bounded(width: float, r: int) -> None:
    """Values b that come from a linear function, or not; corners that agree too."""
    rng = np.random.default_rng(r)
    for k in range(12):
        G = np.eye(r)[:1] + width * rng.uniform(0, 1, (r, r))
        G /= np.linalg.norm(G, axis=1, keepdims=True)
        b = np.abs(G @ rng.standard_normal(r)) if k % 2 else rng.uniform(0.5, 1, r)
        exact = exact_bound(G, b)
        assert exact <= mpf(_cone_bound(G, b))
        if k % 2 or width > 1e-4:  # elsewhere the exact cone is flat but for rounding, and b does not fit to it
            assert _cone_bound(G, b) <= float(exact) * (1 + 1e-12 + 1e-15 / max(width, 1e-3) ** 2)


def test_orthogonal_corners_lose_nothing_to_rounding() -> None:
    b = np.array([3.0, 4.0, 12.0])
    assert 13 <= _cone_bound(np.eye(3), b) <= 13 * (1 + 1e-14)
    assert 5 <= _cone_bound(np.eye(2), np.array([3.0, 4.0])) <= 5 * (1 + 1e-14)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e-14])
def test_outputs_are_turned_into_principal_axes_without_loss(scale: float) -> None:
    """|V^T f| <= |Q| |B^T f| + rest |f| in 60 digits, also for columns that nearly depend on each other."""
    V = drawn(7, 3, 3, 4)[1]
    V[:, 2] = V[:, 0] + scale * V[:, 1]
    Q, B, rest = _principal(V)
    stretch = 1 + orthogonality_error(Q)
    for f in torch.cat([drawn(7, 20, 1, 5)[0].T, V.T]):
        sizes = [
            mpmath.norm([mpmath.fdot(map(mpf, column), map(mpf, f.tolist())) for column in M.T.tolist()])
            for M in (V, B)
        ]
        assert sizes[0] <= stretch * sizes[1] + rest * mpmath.norm(list(map(mpf, f.tolist())))
    assert rest <= (1e-13 if scale < 1e-13 else 1e-14) * float(V.norm())


def test_cuts_pay_for_corners_that_are_rounded() -> None:
    X, V = drawn(4, 2, 3, 1)
    run = _Search(AllOutputs(ExactParallel(X, 2)), _principal(V)[1], 0.0)
    run.search(float("inf"))
    assert run.cuts > 3
    assert run.upper == pytest.approx(-run.queue[0][0], rel=1e-12)
    assert run.upper > -run.queue[0][0]
    for _, _, cell, signs in run.queue:
        G = signs[:, None] * np.stack([run.corners[k] for k in cell])
        assert bool((G @ G.T >= 0).all())
        assert np.linalg.norm(G, axis=1) == pytest.approx(1, rel=1e-14)


def test_a_corner_pays_for_the_rounding_of_its_query() -> None:
    """v = B g is off by a rounding for every entry of g, each of the size of B."""
    X, V = drawn(4, 2, 3, 1)
    run = _Search(AllOutputs(ExactParallel(X, 2)), _principal(V)[1], 0.0)
    size = 2.0**-53 * float(run.B.norm()) * run.settings.reach
    for g in np.eye(3):
        plain = run.settings.scalar._steepest(run.B @ torch.from_numpy(g)[:, None], 0.0, None).bracket.upper
        assert 3 * size <= run.bounds[run.query(g)] - plain <= 100 * (size + 2.0**-53 * plain)
