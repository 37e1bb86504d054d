"""What is proved is true whatever the multipliers are, and costs next to nothing more than what LAPACK computes."""

import math
from dataclasses import fields, replace
from fractions import Fraction

import pytest
import torch

from bidual.polar import Faces
from bidual.polar.products.cells import Cell
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.proof import _lengths, _Numbers, proved_bound
from bidual.polar.products.witness import CellProof, ProductProof, covering
from helpers.product_cases import draw, multipliers, neurons, places


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("clustered", [False, True])
def test_the_proof_is_the_eigenvalue_to_rounding(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        at = multipliers(place)
        bound = proved_bound(place.cell, V, at)
        top = float(torch.linalg.eigvalsh(Majorant(place.cell, V, at).C)[-1])
        assert top <= bound <= top * (1 + 1e-11)
        zero = {name: 0 * getattr(at, name) for name in ("cone_plus", "cone_minus", "form_cones")}
        bare = replace(at, **zero)
        top = float(torch.linalg.eigvalsh(Majorant(place.cell, V, bare).C)[-1])
        assert top <= proved_bound(place.cell, V, bare) <= top * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(5))
def test_any_multipliers_and_any_dual_point_give_a_bound(seed: int) -> None:
    """Multipliers of one V at others, where they are far from good."""
    for place, _ in places(2, bool(seed % 2), seed):
        V = draw(9, 2, seed=seed + 50)
        W, U = neurons(place.cell, 300, seed)
        steepest = (W * ((place.cell.X @ U.T).clamp(min=0).T @ V)).sum(1).max()
        assert proved_bound(place.cell, V, multipliers(place)) >= float(steepest)


def test_rounding_of_the_form_is_within_the_allowance() -> None:
    """The matrix of F(z, Y z) in exact rationals differs by less than what is paid for."""
    place, V = next(iter(places(1, False)))
    majorant = Majorant(place.cell, V, multipliers(place))
    numbers = _Numbers.of(majorant, majorant.Y)
    exact, computed = _form_in_fractions(numbers), numbers.form()
    off = max(abs(exact[i][j] - Fraction(float(computed[i, j]))) for i in range(4) for j in range(4))
    assert 0 < off <= Fraction(2.0**-53 * 200) * Fraction(float(numbers.absolute().form().max()))


def _form_in_fractions(numbers: _Numbers) -> list[list[Fraction]]:
    """T of F(z, Y z) = z^T T z for one output without fixed rows and clusters."""

    def exact(M: torch.Tensor) -> list[list[Fraction]]:
        return [[Fraction(value) for value in row] for row in M.tolist()]

    E, V, Y, P = (exact(part) for part in (numbers.E, numbers.V, numbers.Y, numbers.P))
    plus, minus, mixed = (exact(numbers.pairs.dense(kind)) for kind in range(3))
    D, kappa, m, size = [Fraction(x) for x in numbers.D.tolist()], numbers.kappa.tolist(), len(E), len(E[0])

    def rows(parts: tuple[torch.Tensor, ...]) -> list[list[Fraction]]:
        weights, lengths, directions = exact(parts[0]), [Fraction(x) for x in parts[1].tolist()], exact(parts[2])
        return [
            [
                sum((w * P[k][j] for k, w in enumerate(weight)), Fraction(0)) + length * Fraction(kappa[j]) + g[j]
                for j in range(size)
            ]
            for weight, length, g in zip(weights, lengths, directions, strict=True)
        ]

    A = [[Y[i][j] + E[i][j] for j in range(size)] for i in range(m)]
    B = [[Y[i][j] - E[i][j] for j in range(size)] for i in range(m)]
    on_a, on_b, on_forms = rows(numbers.plus), rows(numbers.minus_rows), rows(numbers.forms)
    T = [[Fraction(0)] * size for _ in range(size)]
    for j in range(size):
        for k in range(size):
            for i in range(m):
                a = sum((plus[i][q] + plus[q][i]) * A[q][k] + 2 * mixed[i][q] * B[q][k] for q in range(m))
                b = sum((minus[i][q] + minus[q][i]) * B[q][k] for q in range(m))
                T[j][k] += A[i][j] * (V[i][k] + on_a[i][k] + a) + B[i][j] * (on_b[i][k] + b)
                T[j][k] += D[i] * (E[i][j] * E[i][k] - Y[i][j] * Y[i][k])
            T[j][k] += sum(P[q][j] * on_forms[q][k] for q in range(len(P)))
        T[j][j] += Fraction(float(numbers.balance[j]))
    return T


def test_lengths_of_cones_are_not_short_at_any_scale() -> None:
    g = draw(6, 5) * 10.0 ** torch.tensor([[0.0], [8.0], [-8.0], [-160.0], [-300.0], [-310.0]]).double()
    for row, found in zip(g.tolist(), _lengths(g).tolist(), strict=True):
        square = sum(Fraction(x) ** 2 for x in row)
        assert square <= Fraction(found) ** 2 <= (1 + Fraction(1e-14)) * square + Fraction(1e-149) ** 2
    assert _lengths(0 * g).tolist() == [0.0] * 6


@pytest.mark.parametrize("clustered", [False, True])
def test_what_is_positive_definite_only_by_rounding_proves_nothing(clustered: bool) -> None:
    """H omega is the slack, the difference of D omega and N omega: what is far below their rounding is not trusted."""
    place, V = next(iter(places(1, clustered)))
    at = multipliers(place)
    size = Majorant(place.cell, V, at).diagonal * at.omega
    for share, proved in ((1e-10, True), (2e-15, False)):
        thin = replace(at, slack=share * size)
        assert Majorant(place.cell, V, thin).Y is not None
        assert math.isfinite(proved_bound(place.cell, V, thin)) is proved


def test_wrong_multipliers_prove_nothing() -> None:
    place, V = next(iter(places(1, False)))
    at = multipliers(place)
    assert math.isfinite(proved_bound(place.cell, V, at))
    unsigned = Cell(place.cell.X, 1)
    wrong = [
        replace(at, omega=-at.omega),
        replace(at, slack=-at.slack),
        replace(at, on_plus=at.on_plus - 1),
        replace(at, form_pairs=-at.form_pairs),
        replace(at, pairs=replace(at.pairs, values=tuple(-value for value in at.pairs.values))),
        replace(at, balance=at.balance * math.nan),
        replace(at, cone_plus=at.cone_plus * 1e200),
    ]
    assert all(proved_bound(place.cell, V, one) == math.inf for one in wrong)
    bare = {"on_plus": at.on_plus[:, :0], "on_minus": at.on_minus[:, :0], "form_pairs": at.form_pairs[:0, :0]}
    assert proved_bound(unsigned, V, replace(at, form_cones=at.form_cones[:0], **bare)) == math.inf  # cones need signs


def test_a_witness_is_valid_at_every_dual_point() -> None:
    X, V = draw(12, 3), draw(12, 2, seed=1)
    oracle = ProductBound(X, steps=20)
    W = V * oracle.lengths[:, None]
    W = W / W.norm()
    cells = oracle._descended(oracle.start(W), W)
    witness = ProductProof(X, oracle.proofs(cells))
    exact = Faces(X)
    here = exact.steepest(V).bracket.upper
    assert here <= witness.steepest(V).bracket.upper <= 1.01 * here
    for seed in range(5):
        other = draw(12, 2, seed=seed + 10)
        assert witness.steepest(other).bracket.upper >= exact.steepest(other).bracket.lower


def test_cells_must_cover() -> None:
    place, _ = next(iter(places(2, False)))
    at = multipliers(place)

    def proofs(*cuts: tuple[tuple[float, float] | None, tuple[tuple[int, int], ...]]) -> list[CellProof]:
        return [CellProof(signs, tuple(f for f, _ in cut), tuple(s for _, s in cut), at) for signs, cut in cuts]

    four = [((a, b), ()) for a in (1.0, -1.0) for b in (1.0, -1.0)]
    halves = [((1.0, 1.0), ((3, 1),)), ((1.0, 1.0), ((3, -1), (2, 1))), ((1.0, 1.0), ((3, -1), (2, -1)))]
    assert covering(proofs(*four), 2)
    assert covering(proofs((None, ())), 2)
    assert covering(proofs(*four[1:], *halves), 2)
    assert not covering(proofs(*four[1:]), 2)
    assert not covering(proofs(*four[1:], *halves[:2]), 2)
    assert not covering(proofs(*four[1:], halves[0], ((1.0, 1.0), ((2, -1),))), 2)
    assert not covering([], 2)


def test_every_field_of_multipliers_is_scaled() -> None:
    place, V = next(iter(places(1, True)))
    at = multipliers(place)
    twice = at.scaled(2.0)
    assert proved_bound(place.cell, 2 * V, twice) == pytest.approx(2 * proved_bound(place.cell, V, at), rel=1e-12)
    assert {f.name for f in fields(at)} - {"omega", "pairs"} == {
        f.name for f in fields(at) if getattr(twice, f.name) is not getattr(at, f.name)
    } - {"pairs"}
