"""The spike-free test of CP eq. (7), against the definition evaluated at many neurons."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.patterns.row_directions import direction_groups, exactly_aligned, unit_rows
from bidual.patterns.spike_free import _coupled, _inverse_gram, is_spike_free
from bidual.polar import Faces
from bidual.training.copositive.splitting import SpikeFreeProof
from helpers.draws import normal


def orthonormal_rows(n: int, d: int) -> Tensor:
    return torch.linalg.qr(normal(d, n))[0].T


def longest_preimage(X: Tensor, count: int = 20000) -> float:
    """max over random |u| = 1 of the shortest |w| with X w = (X u)_+, infinity if there is none."""
    U = torch.nn.functional.normalize(normal(X.shape[1], count, seed=1), dim=0)
    P = (X @ U).clamp(min=0)
    W = torch.linalg.pinv(X) @ P
    outside = float((X @ W - P).abs().max()) > 1e-9
    return math.inf if outside else float(torch.linalg.vector_norm(W, dim=0).max())


TRUE = {
    "zero": torch.zeros(3, 2),
    "one sample": normal(1, 4),
    "parallel rows": torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]]),
    "diagonal with a zero": torch.diag(torch.tensor([1.0, 2.0, 0.0, 3.0])),
    "orthogonal rows of several lengths": torch.tensor([1.0, 0.1, 30.0])[:, None] * orthonormal_rows(3, 5),
    "repeated orthogonal rows, n > d": torch.eye(3).repeat(4, 1) * torch.arange(1.0, 13.0)[:, None],
    "acute pair": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
    "acute pair, repeated": torch.tensor([[1.0, 0.0], [1.0, 1.0], [3.0, 3.0], [1.0, 0.0]]),
}
FALSE = {
    "opposite rows": torch.tensor([[1.0, 2.0], [-2.0, -4.0]]),
    "opposite numbers": torch.tensor([[1.0], [-2.0]]),
    "obtuse pair": torch.tensor([[1.0, 0.0], [-1.0, 1.0]]),
    "tall": normal(20, 3),
    "wide": normal(5, 20),
    "rank two of four": normal(4, 2) @ normal(2, 6, seed=1),
    "de-meaned and white": orthonormal_rows(20, 30) - orthonormal_rows(20, 30).mean(0),
    "three acute rows in a plane": torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),
    "very different lengths": torch.tensor([[1e-150, 0.0], [-1e150, 1e150]], dtype=torch.float64),
}


@pytest.mark.parametrize("name", TRUE)
def test_spike_free(name: str) -> None:
    X = TRUE[name].double()
    answer = is_spike_free(X)
    assert answer.holds
    assert answer.witness is None
    assert longest_preimage(X) <= answer.spike.upper + 1e-9 <= 1 + 2e-9


@pytest.mark.parametrize("name", FALSE)
def test_not_spike_free_with_a_witness(name: str) -> None:
    X = FALSE[name].double()
    answer = is_spike_free(X)
    assert answer.holds is False
    assert answer.certain
    assert answer.witness is not None
    u, z = answer.witness.u, answer.witness.z  # the proof in two lines, on X as given
    assert z @ (X @ u).clamp(min=0) > torch.linalg.vector_norm(X.T @ z) * torch.linalg.vector_norm(u)
    assert answer.spike.lower > 1


def test_the_witness_of_independent_rows_needs_the_longer_preimage_it_says() -> None:
    X = normal(4, 6)
    answer = is_spike_free(X)
    assert answer.witness is not None
    shortest = torch.linalg.pinv(X) @ (X @ answer.witness.u).clamp(min=0)
    assert torch.linalg.vector_norm(shortest) == pytest.approx(answer.spike.lower, rel=1e-9)
    assert torch.linalg.vector_norm(answer.witness.u) == pytest.approx(1)


def test_agrees_with_the_definition_on_random_matrices() -> None:
    answers = []
    for seed in range(120):
        n, d = 2 + seed % 3, 2 + seed % 3 + seed % 2
        X = normal(n, d, seed=seed) + 0.6 * (seed % 5)
        answer, longest = is_spike_free(X), longest_preimage(X, 5000)
        answers.append(answer.holds)
        assert longest <= answer.spike.upper * (1 + 1e-9)
        assert not (answer.holds and longest > 1 + 1e-9)
    assert 30 < sum(map(bool, answers)) < 90
    assert None not in answers


def test_inverse_m_matrices_are_spike_free() -> None:
    M = -normal(5, 5).abs()
    M = (M + M.T).fill_diagonal_(0)
    M = M + (0.1 - float(torch.linalg.eigvalsh(M)[0])) * torch.eye(5, dtype=torch.float64)
    X = torch.linalg.cholesky(torch.linalg.inv(M))  # (X X^T)^-1 = M has no positive entry off its diagonal
    answer = is_spike_free(X)
    assert answer.holds
    assert answer.certain
    assert longest_preimage(X) <= 1 + 1e-9


def test_structure_is_certain_and_rounding_is_not() -> None:
    assert is_spike_free(TRUE["diagonal with a zero"].double()).certain
    white = is_spike_free(orthonormal_rows(20, 40))
    assert white.holds
    assert not white.certain
    assert is_spike_free(orthonormal_rows(20, 40).float()).holds
    assert is_spike_free(orthonormal_rows(20, 40).float(), tol=0.0).holds is not True


def test_undecided_where_rounding_hides_the_answer() -> None:
    answer = is_spike_free(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1e-12, 0.0], [0.5, 0.5, 1.0]]).double())
    assert answer.holds is None
    assert answer.spike.upper == math.inf


def test_a_hundred_thousand_samples() -> None:
    assert is_spike_free(normal(100_000, 5)).holds is False


@pytest.mark.parametrize("X", [torch.zeros(0, 3), torch.tensor([[1.0, math.nan]])])
def test_bad_input(X: Tensor) -> None:
    with pytest.raises(ValueError, match="finite matrix with at least one row"):
        is_spike_free(X)


def test_direction_groups() -> None:
    X = torch.tensor([[1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [3.0, 6.0], [2.0, 1.0]])
    labels = direction_groups(X).tolist()
    assert labels[1] == -1
    assert labels[0] == labels[3]
    assert len({labels[0], labels[2], labels[4]}) == 3


def rows_of(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_rows_are_exactly_parallel_only_where_that_is_true_in_real_arithmetic() -> None:
    for seed in range(30):
        R = normal(6, 4, seed=seed)
        X = R * torch.tensor([1.0, 2.0, 0.5, 3.0, 0.1, -1.0]).double()[:, None]
        X[1, 2] *= 1 + (seed % 2) * 2.0**-52
        found = exactly_aligned(X, R).tolist()
        for x, r, said in zip(X.tolist(), R.tolist(), found, strict=True):
            cross = [Fraction(a) * Fraction(r[0]) - Fraction(b) * Fraction(x[0]) for a, b in zip(x, r, strict=True)]
            assert said is (not any(cross) and x[0] * r[0] > 0)
        assert (found[0], found[2], found[5]) == (True, True, False)
    beyond = 1e-200 * normal(2, 3)
    assert not bool(exactly_aligned(beyond, beyond).any())
    assert bool(exactly_aligned(rows_of([0.0, 2.0, 0.0]), rows_of([0.0, 3.0, 0.0])).all())


def test_rows_that_are_parallel_up_to_rounding_are_not_certain_and_their_distance_is_known() -> None:
    """0.1 * 3 is not 0.3: three rows of a plane in three directions, so that X itself has no finite spike."""
    X = rows_of([1.0, 0.1], [3.0, 0.1 * 3], [0.0, 1.0])
    near, exact = is_spike_free(X), is_spike_free(rows_of([1.0, 0.1], [2.0, 0.2], [0.0, 1.0]))
    assert (exact.holds, exact.certain, exact.moved) == (True, True, 0.0)
    assert (near.holds, near.certain) == (True, False)
    x, r = ([Fraction(a) for a in row] for row in X[[1, 0]].tolist())
    share = sum(a * b for a, b in zip(x, r, strict=True)) / sum(b * b for b in r)
    apart = sum((a - share * b) ** 2 for a, b in zip(x, r, strict=True)) / sum(a * a for a in x)
    assert 0 < apart <= Fraction(near.moved) ** 2 <= Fraction(1, 10**28)


@pytest.mark.parametrize("name", ["acute", "white", "nearly dependent"])
def test_inverse_gram_matrices_are_off_by_less_than_their_error(name: str) -> None:
    X = {"acute": normal(4, 6).abs(), "white": orthonormal_rows(6, 9), "nearly dependent": normal(3, 5)}[name]
    if name == "nearly dependent":
        X[2] = X[0] + X[1] + 1e-4 * X[2]
    found = _inverse_gram(unit_rows(X))
    assert found is not None
    H, error = found
    with mpmath.workdps(50):
        rows = [mpmath.matrix(row) for row in X.tolist()]
        sizes = [max(map(abs, row)) for row in X.tolist()]
        lengths = [float(torch.linalg.vector_norm(row / size)) for row, size in zip(X, sizes, strict=True)]
        T = [row / (size * length) for row, size, length in zip(rows, sizes, lengths, strict=True)]
        G = mpmath.matrix(len(T), len(T))
        for i, j in itertools.product(range(len(T)), repeat=2):
            G[i, j] = (T[i].T * T[j])[0]
        exact = G**-1
        off = max(abs(exact[i, j] - float(H[i, j])) for i, j in itertools.product(range(len(T)), repeat=2))
        assert off <= error <= 1e-3 * float(H.diagonal().min())


def test_rows_that_overlap_by_products_that_underflow_are_coupled() -> None:
    """t_1^T t_2 = 1e-400 is not zero, so the sign of H_12 is that of -t_1^T t_2 and not known to be zero."""
    X = rows_of([1.0, 1e-200, 0.0], [0.0, -1e-200, 1.0])
    assert _coupled(X).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    answer = is_spike_free(X)
    assert (answer.holds, answer.certain) == (True, False)
    assert answer.spike.upper > 1


@pytest.mark.parametrize("name", FALSE)
def test_the_margin_of_a_witness_holds_in_real_arithmetic(name: str) -> None:
    X = FALSE[name].double()
    answer = is_spike_free(X)
    assert answer.witness is not None
    with mpmath.workdps(50):
        u, z, data = (mpmath.matrix(part.tolist()) for part in (answer.witness.u, answer.witness.z, X))
        hidden = (data * u).apply(lambda x: max(x, 0))
        reach, size = (z.T * hidden)[0], mpmath.norm(data.T * z) * mpmath.norm(u)
        assert 0 < answer.witness.margin(X) <= reach - size
        assert answer.spike.lower <= reach / size or size < 1e-15 * reach


def test_the_spike_of_white_rows_is_one_to_sixteen_digits() -> None:
    assert is_spike_free(orthonormal_rows(200, 300)).spike.upper <= 1 + 1e-14


def test_the_proof_of_a_relaxation_pays_for_rows_that_are_nearly_parallel() -> None:
    """The polar of X, by its exact oracle, is not above what the multipliers prove; nor is that looser than before."""
    X, V = rows_of([1.0, 0.1], [3.0, 0.1 * 3], [0.0, 1.0]), rows_of([1.0, 0.2], [-0.3, 1.0], [0.4, 0.4])
    proved = SpikeFreeProof(np.zeros((6, 6))).polar(X, V)
    best = Faces(X).steepest(V).bracket
    assert best.lower <= proved
    assert proved <= float(torch.linalg.matrix_norm(V.T @ X, 2)) * (1 + 1e-11)
