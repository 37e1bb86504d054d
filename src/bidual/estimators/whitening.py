"""ZCA whitening as a scikit-learn transformer, scaled so that X X^T = I, the hypothesis of CP Theorem 2."""

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from bidual.estimators.inputs import answers_in_kind, as_plain_array, refuse_sparse
from bidual.estimators.parameters import FLAG, must

Array = NDArray[np.float64]


class ZCAWhitening(TransformerMixin, BaseEstimator):
    r"""x -> W S^-1 W^T (x - mean), from the singular value decomposition X - mean = U S W^T of the training data.

    The training data become U W^T. With n <= d samples in general position they have orthonormal rows, X X^T = I, and
    are spike-free (CP section 2): ReLU networks on them have a closed form (CP Theorem 2,
    ``bidual.training.relu.closed_form``). The usual covariance scaling would give X X^T = n I.

    De-meaning alone gives X X^T = I - 1 1^T / n, which is not spike-free, and Theorem 2 fails on it. The constant
    column 1 / sqrt(n) behind the features restores X X^T = I, with n <= d + 1; it is also a hidden bias that pays
    weight decay. Where there are more samples than that, or the rows are dependent, X^T X is the projection on the
    range of the features (with the constant column), and ``spike_free_`` is False.

    New samples go through the same map, into a frame if ``set_output`` says so. Sparse ones are refused, because
    de-meaning would fill them. Directions that the training data hardly vary along are magnified most.

    Args:
        center: subtract the mean of the training data.
        constant_column: with ``center``, append the column 1 / sqrt(n). Without it nothing is appended.
        rtol: singular values up to ``rtol`` times the largest one of the data before de-meaning count as zero; None is
            max(n, d) times the rounding of float64. Without such a cut, rounding turns the direction that
            de-meaning removes into a feature of garbage that looks white.

    Attributes:
        mean_: (d,), zeros without ``center``.
        components_: W^T (rank_, d).
        singular_values_: S (rank_,).
        whitening_: the map W S^-1 W^T (d, d), made when asked for.
        rank_: number of singular values kept.
        spike_free_: whether the transformed training data have X X^T = I, measured.
    """

    def __init__(self, center: bool = True, constant_column: bool = True, rtol: float | None = None) -> None:
        self.center = center
        self.constant_column = constant_column
        self.rtol = rtol

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the map from samples X (n, d); y is ignored."""
        self._check_parameters()
        _refuse_sparse(X)
        samples: Array = validate_data(self, as_plain_array(X), dtype=np.float64)
        n = len(samples)
        if self.center and n == 1:
            raise ValueError("center=True needs at least two samples, got n_samples=1. Use center=False.")
        mean = samples.mean(0) if self.center else np.zeros(samples.shape[1])
        size = float(np.abs(samples).max())
        _, values, rows = svd((samples - mean) / (size or 1.0), full_matrices=False)
        rtol = max(samples.shape) * np.finfo(np.float64).eps if self.rtol is None else self.rtol
        offset = math.sqrt(n) * float(np.linalg.norm(mean / (size or 1.0)))
        kept = values > rtol * math.hypot(values[0], offset)
        if not kept.any():
            raise ValueError(f"X must vary, got {'equal rows' if self.center else 'zeros only'}: nothing to whiten.")
        self.mean_, self.components_, self.singular_values_ = mean, rows[kept], values[kept] * size
        self.rank_, self.constant_ = int(kept.sum()), 1 / math.sqrt(n)
        white = self._map(samples)
        self.spike_free_ = n <= white.shape[1] and bool(np.allclose(white @ white.T, np.eye(n), rtol=0, atol=1e-6))
        return self

    @answers_in_kind
    def transform(self, X: ArrayLike) -> Array:
        """The whitened samples (n, d), with the constant column behind them (n, d + 1) if there is one."""
        check_is_fitted(self)
        _refuse_sparse(X)
        return self._map(validate_data(self, X, dtype=np.float64, reset=False))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """The input names, which ZCA keeps apart, and ``zca_constant`` for the constant column."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.append(names, "zca_constant").astype(object) if self._appends else names

    @property
    def whitening_(self) -> Array:
        check_is_fitted(self, "components_")
        return (self.components_.T / self.singular_values_) @ self.components_

    @property
    def _appends(self) -> bool:
        return bool(self.center and self.constant_column)

    def _map(self, X: Array) -> Array:
        white = ((X - self.mean_) @ self.components_.T / self.singular_values_) @ self.components_
        return np.column_stack([white, np.full(len(X), self.constant_)]) if self._appends else white

    def _check_parameters(self) -> None:
        FLAG("center", self.center)
        FLAG("constant_column", self.constant_column)
        must("None or a number from 0 to below 1", lambda value: value is None or 0 <= value < 1)("rtol", self.rtol)


def _refuse_sparse(X: object) -> None:
    refuse_sparse(as_plain_array(X), "samples to whiten", "because subtracting the mean fills them")
