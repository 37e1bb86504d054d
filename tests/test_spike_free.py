"""The spike-free test of CP eq. (7), against the definition evaluated at many neurons."""

import math

import pytest
import torch
from torch import Tensor

from bidual.patterns.parallel import parallel_groups
from bidual.patterns.spike_free import is_spike_free


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def test_parallel_groups() -> None:
    X = torch.tensor([[1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [3.0, 6.0], [2.0, 1.0]])
    labels = parallel_groups(X).tolist()
    assert labels[1] == -1
    assert labels[0] == labels[3]
    assert len({labels[0], labels[2], labels[4]}) == 3
