"""The cheap witness: its bound against dense matrices and many directions, its rounding from both sides, its start."""

from fractions import Fraction
from math import inf, sqrt

import mpmath
import pytest
import torch
from torch import Tensor

from bidual.polar.relaxations.diagonal import Aggregated, RowMultipliers, _contracts, _elementary, _sums, diagonal_bound
from helpers.draws import normal


def problem(n: int, r: int, c: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, RowMultipliers]:
    x, V, P = normal(n, r, seed=seed), normal(n, c, seed=seed + 1), normal(n, m, seed=seed + 2).abs()
    x, V, P = x / torch.linalg.matrix_norm(x, 2), V / V.norm(), P / P.norm(dim=0)
    K = 0.02 * normal(2 * m, 2 * m, seed=seed + 3).abs()
    return x, V, P, RowMultipliers(2 + normal(n, seed=seed + 4).abs(), 0.5 * (K + K.T))


def dense_level(x: Tensor, V: Tensor, P: Tensor, witness: RowMultipliers) -> float:
    """lambda by the matrices of the class's docstring, n by n; infinity where S is not positive definite."""
    t, K = witness
    n, m = P.shape
    G = torch.cat([torch.zeros(m, x.shape[1], dtype=torch.float64), P.T @ x])
    both = torch.cat([torch.eye(m, dtype=torch.float64)] * 2, 1)
    S = t.diag() - V @ V.T - P @ (both @ K @ both.T) @ P.T
    if n and float(torch.linalg.eigvalsh(S)[0]) <= 0:
        return inf
    C = -0.5 * t[:, None] * x + P @ both @ K @ G
    return float(torch.linalg.eigvalsh(G.T @ K @ G + C.T @ torch.linalg.solve(S, C))[-1])


SIZES = [(6, 3, 2, 2), (6, 3, 1, 3), (5, 1, 2, 1), (8, 3, 2, 0), (1, 1, 1, 1), (3, 3, 4, 4)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("seed", [0, 10])
def test_the_bound_is_that_of_the_dense_matrices(sizes: tuple[int, int, int, int], seed: int) -> None:
    x, V, P, witness = problem(*sizes, seed=seed)
    bound, exact = Aggregated(x, V, P).bound(witness), sqrt(dense_level(x, V, P, witness))
    assert exact <= bound <= exact * (1 + 1e-9)


@pytest.mark.parametrize("sizes", SIZES)
def test_no_direction_is_above_the_bound(sizes: tuple[int, int, int, int]) -> None:
    x, V, P, witness = problem(*sizes)
    U = torch.nn.functional.normalize(normal(500, sizes[1], seed=9))
    values = torch.linalg.vector_norm((U @ x.T).clamp(min=0) @ V, dim=1)
    assert float(values.max()) <= Aggregated(x, V, P).bound(witness)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_level_is_the_dense_one_smoothed(sizes: tuple[int, int, int, int]) -> None:
    x, V, P, witness = problem(*sizes)
    level = Aggregated(x, V, P).level(witness, 1e-9)
    exact = dense_level(x, V, P, witness)
    assert level.shape == ()
    assert float(level) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("width", [0.1, 1.0])
def test_smoothing_adds_a_soft_maximum_and_a_barrier(width: float) -> None:
    x, V, P, witness = problem(6, 3, 2, 2)
    m, t, K = 2, *witness
    G = torch.cat([torch.zeros(m, 3, dtype=torch.float64), P.T @ x])
    both = torch.cat([torch.eye(m, dtype=torch.float64)] * 2, 1)
    S = t.diag() - V @ V.T - P @ (both @ K @ both.T) @ P.T
    C = -0.5 * t[:, None] * x + P @ both @ K @ G
    values = torch.linalg.eigvalsh(G.T @ K @ G + C.T @ torch.linalg.solve(S, C))
    barrier = float(torch.logdet(S) - t.log().sum())
    expected = width * (float((values / width).exp().sum().log()) - barrier)
    assert float(Aggregated(x, V, P).level(witness, width)) == pytest.approx(expected, rel=1e-9)


def test_the_closed_form_without_sums() -> None:
    """One row x = 1, V = v: lambda(t) = t/4 + v^2 / (4 (1 - v^2 / t)), least at t = 2 v^2, where it is v^2."""
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    made = Aggregated(one, 0.5 * one, none)
    for t in (0.3, 0.5, 2.0):
        witness = RowMultipliers(t * one[0], torch.zeros(0, 0, dtype=torch.float64))
        level = t / 4 + 0.25 / (4 * (1 - 0.25 / t))
        assert sqrt(level) <= made.bound(witness) <= sqrt(level) * (1 + 1e-11)
        assert float(made.level(witness, 1e-10)) == pytest.approx(level, rel=1e-6)


def bad(**changes: Tensor) -> RowMultipliers:
    return problem(6, 3, 2, 2)[3]._replace(**changes)


@pytest.mark.parametrize(
    "witness",
    [
        bad(t=torch.full((6,), 0.01, dtype=torch.float64)),
        bad(t=torch.zeros(6, dtype=torch.float64)),
        bad(t=torch.tensor([2.0, 2, 2, 2, 2, -2], dtype=torch.float64)),
        bad(t=torch.tensor([2.0, 2, 2, 2, 2, 0], dtype=torch.float64)),
        bad(t=torch.tensor([2.0, 2, 2, 2, 2, inf], dtype=torch.float64)),
        bad(t=torch.full((6,), float("nan"), dtype=torch.float64)),
        bad(K=torch.full((4, 4), inf, dtype=torch.float64)),
        bad(K=torch.full((4, 4), 100.0, dtype=torch.float64)),
        bad(K=torch.full((4, 4), 1e300, dtype=torch.float64)),
    ],
    ids=["small", "zero", "one negative", "one zero", "infinite", "nan", "infinite K", "large K", "huge K"],
)
def test_a_witness_that_proves_nothing_gives_infinity(witness: RowMultipliers) -> None:
    x, V, P, _ = problem(6, 3, 2, 2)
    assert Aggregated(x, V, P).bound(witness) == inf


@pytest.mark.parametrize("name", ["t", "K"])
def test_outside_its_domain_the_level_is_infinite(name: str) -> None:
    x, V, P, witness = problem(6, 3, 2, 2)
    far = {"t": RowMultipliers(1e-3 * witness.t, witness.K), "K": RowMultipliers(witness.t, 1e4 * witness.K)}[name]
    assert float(Aggregated(x, V, P).level(far, 0.1)) == inf
    assert float(Aggregated(x, V, P).level(RowMultipliers(witness.t * inf, witness.K), 0.1)) == inf
    assert float(Aggregated(x, V, P).level(RowMultipliers(witness.t * 1e308, witness.K), 0.1)) == inf


def test_what_is_not_symmetric_or_negative_in_the_witness_is_made_so() -> None:
    x, V, P, witness = problem(6, 3, 2, 2)
    made, K = Aggregated(x, V, P), witness.K
    skew = torch.triu(torch.full((4, 4), 0.01, dtype=torch.float64), 1)
    assert made.bound(RowMultipliers(witness.t, K + skew - skew.T)) == pytest.approx(made.bound(witness), rel=1e-13)
    clamped, negative = K.clone(), K.clone()
    clamped[0, 0], negative[0, 0] = 0.0, -5.0
    assert made.bound(RowMultipliers(witness.t, negative)) == made.bound(RowMultipliers(witness.t, clamped))


@pytest.mark.parametrize("share", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
def test_rounding_is_allowed_for_more_where_s_is_nearly_singular(share: float) -> None:
    """One row, V = v: the closed form, at t closer and closer to v^2."""
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    t = 1 + share
    bound = Aggregated(one, one, none).bound(RowMultipliers(t * one[0], torch.zeros(0, 0, dtype=torch.float64)))
    exact = Fraction(t) / 4 + Fraction(t) / (4 * (Fraction(t) - 1))
    assert exact <= Fraction(bound) ** 2 <= exact * (1 + Fraction(1e-12 / share))


def test_singular_proves_nothing() -> None:
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    made, K = Aggregated(one, one, none), torch.zeros(0, 0, dtype=torch.float64)
    for t in (1 - 1e-12, 1.0, 1 + 1e-15):
        assert made.bound(RowMultipliers(t * one[0], K)) == inf


def exact_level(x: Tensor, V: Tensor, P: Tensor, witness: RowMultipliers) -> mpmath.mpf:
    """lambda by the matrices of the class's docstring, to fifty digits."""
    x, V, P, K = (mpmath.matrix(part.tolist()) if part.numel() else None for part in (x, V, P, witness.K))
    D = mpmath.diag(witness.t.tolist())
    S, C = D - V * V.T, -0.5 * D * x
    top = mpmath.zeros(x.cols)
    if K is not None:
        m = P.cols
        both = mpmath.matrix(m, 2 * m)
        both[:, :m], both[:, m:] = mpmath.eye(m), mpmath.eye(m)
        G = mpmath.matrix(2 * m, x.cols)
        G[m:, :] = P.T * x
        S, C, top = S - P * both * K * both.T * P.T, C + P * both * K * G, G.T * K * G
    return max(mpmath.eigsy(top + C.T * mpmath.inverse(S) * C, eigvals_only=True))


def spoiled(kind: str, n: int = 14) -> tuple[Tensor, Tensor, Tensor, RowMultipliers]:
    x, V, P, (t, K) = problem(n, 3, 2, 2, seed=20)
    match kind:
        case "ties":
            x, V, P = (torch.cat([part[: n // 2]] * 2) for part in (x, V, P))
        case "uneven t":
            t = t * torch.logspace(0, 8, n, dtype=torch.float64)
        case "large K":
            K = 20 * K
            t = t + 50 * n
        case "V is a difference of sums":
            P = torch.cat([V.clamp(min=0), (-V).clamp(min=0)], 1)
            K = 0.02 * normal(8, 8, seed=5).abs()
            K = 0.5 * (K + K.T)
        case "nearly singular":
            t = torch.full_like(t, float(torch.linalg.matrix_norm(V, 2)) ** 2 * (1 + 1e-6))
            P, K = P[:, :0], K[:0, :0]
    return x, V, P, RowMultipliers(t, K)


KINDS = ["plain", "ties", "uneven t", "large K", "V is a difference of sums", "nearly singular"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_in_real_arithmetic_and_is_tight(kind: str) -> None:
    x, V, P, witness = spoiled(kind)
    with mpmath.workdps(50):
        exact = mpmath.sqrt(exact_level(x, V, P, witness))
        loss = mpmath.mpf(Aggregated(x, V, P).bound(witness)) / exact - 1
    assert 0 <= loss <= (1e-8 if kind == "nearly singular" else 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_rule_proves_less_and_nothing_false(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Y comes from LAPACK, which is not trusted: any other Y gives a bound too."""
    x, V, P, witness = spoiled(kind)
    made = Aggregated(x, V, P)
    right, rule = made.bound(witness), made._rule
    noise = normal(*x.shape, seed=3)

    def wrong(*parts: Tensor) -> tuple[float, Tensor]:
        kappa, Y = rule(*parts)
        return kappa, Y + 1e-3 * noise

    monkeypatch.setattr(made, "_rule", wrong)
    assert made.bound(witness) > right


@pytest.mark.parametrize("kind", KINDS)
def test_the_margin_of_s_is_not_overstated(kind: str) -> None:
    x, V, P, witness = spoiled(kind)
    kappa = Aggregated(x, V, P)._rule(*Aggregated(x, V, P)._parts(witness)[:3])[0]
    with mpmath.workdps(50):
        scale = mpmath.diag([1 / mpmath.sqrt(mpmath.mpf(t)) for t in witness.t.tolist()])
        v, p = mpmath.matrix(V.tolist()), mpmath.matrix(P.tolist()) if P.numel() else None
        S = mpmath.diag(witness.t.tolist()) - v * v.T
        if p is not None:
            m, K = P.shape[1], mpmath.matrix(witness.K.tolist())
            S -= p * (K[:m, :m] + K[:m, m:] + K[m:, :m] + K[m:, m:]) * p.T
        least = min(mpmath.eigsy(scale * S * scale, eigvals_only=True))
    assert kappa <= least
    assert float(least) - kappa <= 1e-12


def test_many_samples_lose_no_visible_digit() -> None:
    x, V, P, witness = problem(2000, 5, 2, 2)
    level = float(Aggregated(x, V, P).level(witness, 1e-12))
    assert sqrt(level) * (1 - 1e-11) <= Aggregated(x, V, P).bound(witness) <= sqrt(level) * (1 + 1e-9)


@pytest.mark.parametrize("value", [inf, float("nan")])
def test_what_is_not_finite_does_not_contract(value: float) -> None:
    good = 0.1 * torch.eye(2, dtype=torch.float64)
    assert _contracts(good, good)
    assert _contracts(torch.zeros(0, 0, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.float64))
    assert not _contracts(good * value, good)
    assert not _contracts(good, good * value)


def test_the_elementary_witness_has_the_elementary_bound() -> None:
    x, V = normal(6, 3), normal(6, 2, seed=1)
    x, V = x / torch.linalg.matrix_norm(x, 2), V / V.norm()
    made = Aggregated(x, V, x.new_zeros(6, 0)).bound(RowMultipliers(_elementary(x, V), x.new_zeros(0, 0)))
    norms = [float(torch.linalg.matrix_norm(part, 2)) for part in (V.T @ x, V, x)]
    elementary = 0.5 * norms[0] + 0.5 * norms[1] * norms[2]
    assert made <= elementary * (1 + 1e-5)
    for sums in (False, True):
        assert diagonal_bound(x, V, sums, 10) <= made


def test_sums_are_the_unit_positive_and_negative_parts() -> None:
    V = torch.tensor([[3.0, 0.0], [4.0, -2.0]], dtype=torch.float64)
    assert _sums(V).tolist() == [[0.6, 0.0], [0.8, 1.0]]
    wide = normal(5, 21)
    parts = torch.stack([wide.clamp(min=0).sum(1), (-wide).clamp(min=0).sum(1)], 1)
    assert torch.allclose(_sums(wide), parts / parts.norm(dim=0))
