"""ZCA whitening: X X^T = I on the training data, the same map for new data, and what it refuses."""

import numpy as np
import pytest
from scipy import sparse

from bidual.estimators.whitening import ZCAWhitening


def samples(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)) + 3


@pytest.mark.parametrize(("n", "center"), [(30, False), (40, False), (30, True), (40, True), (41, True)])
def test_rows_become_orthonormal(n: int, center: bool) -> None:
    zca = ZCAWhitening(center=center)
    X = zca.fit_transform(samples(n, 40))
    np.testing.assert_allclose(X @ X.T, np.eye(n), atol=1e-11)
    assert zca.spike_free_
    assert zca.rank_ == n - center
    assert X.shape[1] == 40 + center


def test_centring_alone_leaves_the_projection() -> None:
    zca = ZCAWhitening(constant_column=False)
    X = zca.fit_transform(samples(30, 40))
    np.testing.assert_allclose(X @ X.T, np.eye(30) - 1 / 30, atol=1e-12)
    assert not zca.spike_free_
    assert zca.rank_ == 29


def test_rounding_is_not_taken_for_a_feature() -> None:
    """A float32 decomposition without a cut has XX^T = I to 1e-6 on de-meaned data, by a feature of garbage."""
    raw = samples(30, 40).astype(np.float32)
    left, _, right = np.linalg.svd(raw - raw.mean(0), full_matrices=False)
    fake = left @ right
    np.testing.assert_allclose(fake @ fake.T, np.eye(30), atol=1e-5)
    assert ZCAWhitening(constant_column=False).fit(raw).rank_ == 29
    assert not ZCAWhitening(constant_column=False).fit(raw).spike_free_
    assert ZCAWhitening(constant_column=False).fit(samples(30, 40) + 1e9).rank_ == 29


def test_more_samples_than_features() -> None:
    zca = ZCAWhitening().fit(samples(50, 4))
    X = zca.transform(samples(50, 4))
    np.testing.assert_allclose(X.T @ X, np.eye(5), atol=1e-12)
    assert not zca.spike_free_


def test_rank_deficient() -> None:
    raw = samples(6, 2) @ samples(2, 9, seed=1)
    zca = ZCAWhitening(center=False).fit(raw)
    X = zca.transform(raw)
    assert zca.rank_ == 2
    assert not zca.spike_free_
    np.testing.assert_allclose(X.T @ X, zca.components_.T @ zca.components_, atol=1e-12)


def test_new_samples_go_through_the_same_map() -> None:
    zca, new = ZCAWhitening().fit(samples(10, 20)), samples(3, 20, seed=1)
    expected = np.column_stack([(new - zca.mean_) @ zca.whitening_, np.full(3, 10**-0.5)])
    np.testing.assert_allclose(zca.transform(new), expected, atol=1e-12)


def test_zero_phase() -> None:
    """ZCA is the symmetric square root, the whitening that stays closest to the features."""
    raw = samples(500, 3)
    zca = ZCAWhitening(constant_column=False).fit(raw)
    covariance = np.cov(raw.T, bias=True) * 500
    np.testing.assert_allclose(zca.whitening_ @ covariance @ zca.whitening_, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(zca.whitening_, zca.whitening_.T)
    assert np.linalg.eigvalsh(zca.whitening_).min() > 0


def test_feature_names() -> None:
    assert list(ZCAWhitening().fit(samples(5, 2)).get_feature_names_out()) == ["x0", "x1", "zca_constant"]
    assert list(ZCAWhitening(center=False).fit(samples(5, 2)).get_feature_names_out(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize(
    ("zca", "X", "message"),
    [
        (ZCAWhitening(), np.ones((1, 3)), "n_samples=1"),
        (ZCAWhitening(), np.full((4, 3), 0.1), "equal rows"),
        (ZCAWhitening(center=False), np.zeros((4, 3)), "zeros only"),
        (ZCAWhitening(), np.array([[1.0, np.nan], [0.0, 1.0]]), "NaN"),
        (ZCAWhitening(center="yes"), samples(4, 3), "center must be True or False"),
        (ZCAWhitening(rtol=-1), samples(4, 3), "rtol must be"),
    ],
)
def test_bad_input(zca: ZCAWhitening, X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zca.fit(X)


def test_sparse_samples_are_refused_with_what_to_do() -> None:
    full = np.eye(4)
    for whiten in (ZCAWhitening().fit, ZCAWhitening().fit(full).transform):
        with pytest.raises(ValueError, match=r"^samples to whiten must be full arrays, got a sparse csr_array"):
            whiten(sparse.csr_array(full))
