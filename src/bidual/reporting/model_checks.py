"""Whether what a model file held is what a fit writes, as far as a page shows it; other parts are checked by `load`."""

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.gauges import Gauge
from bidual.reporting.shapes import Fields


def check_model(model: ConvexEstimator | LayerwiseCNNClassifier, path: object) -> None:
    """Refuse in one sentence a file with attributes that no fit writes."""
    fields = Fields(vars(model), f"the damaged model file {path}")
    fields.whole("n_features_in_")
    for name in ("sample_shape_", "target_shape_"):
        if name in fields:
            fields.satisfies(name, _is_shape, "whole numbers")
    if is_classifier(model):
        fields.satisfies("classes_", lambda value: isinstance(value, np.ndarray) and value.ndim == 1, "labels in a row")
    if isinstance(model, LayerwiseCNNClassifier):
        fields.truth("interrupted_")
    else:
        _check_convex(model, fields)


def _check_convex(model: ConvexEstimator, fields: Fields) -> None:
    for name in ("beta_", "tol"):
        fields.positive(name)
    fields.satisfies("beta_max_", lambda value: _is_real(value) and 0 <= value < np.inf, "a number from zero on")
    fields.text("solver_")
    fields.whole("n_iter_")
    fields.text("output", "")
    if "penalty" in fields:
        fields.satisfies("penalty", lambda value: isinstance(value, (str, Gauge)), "the name of a gauge, or a gauge")
    fields.satisfies("loss", lambda _: _has_loss(model), "a loss of this estimator")
    if "cv_scores_" in fields:
        fields.satisfies("betas_", _are_betas, "positive numbers in a row")
        count = len(model.betas_)
        fields.satisfies("cv_scores_", lambda value: _are_scores(value, count), f"a table of numbers with {count} rows")


def _is_real(value: Any) -> bool:
    """A number that a float can hold, finite or not."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return whole or isinstance(value, float)


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(size, int) and size > 0 for size in value)


def _is_numeric(value: Any, axes: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and value.ndim == axes


def _are_betas(value: Any) -> bool:
    return _is_numeric(value, 1) and len(value) > 0 and bool((np.isfinite(value) & (value > 0)).all())


def _are_scores(value: Any, count: int) -> bool:
    return _is_numeric(value, 2) and len(value) == count and value.shape[1] > 0


def _has_loss(model: ConvexEstimator) -> bool:
    try:
        model._make_loss()
    except (ValueError, TypeError):  # an unknown name, or no name at all
        return False
    return True
