"""Whether a model file holds what a fit writes, as far as a page shows it; `load` checks the other parts."""

from math import inf
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sklearn.base import is_classifier

from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.gauges import Gauge
from bidual.runtime.json_text import validated


def _row(value: np.ndarray) -> np.ndarray:
    if value.ndim != 1:
        raise ValueError("must be labels in a row")
    return value


def _betas(value: np.ndarray) -> np.ndarray:
    numeric = value.dtype.kind in "iuf" and value.ndim == 1 and len(value) > 0
    if not numeric or not bool((np.isfinite(value) & (value > 0)).all()):
        raise ValueError("must be positive numbers in a row")
    return value


def _scores(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind not in "iuf" or value.ndim != 2 or not value.size:
        raise ValueError("must be a table of numbers")
    return value


def _penalty(value: Any) -> Any:
    if not isinstance(value, (str, Gauge)):
        raise ValueError("must be the name of a gauge, or a gauge")
    return value


_Whole = Annotated[int, Field(ge=0, lt=2**53)]
_Positive = Annotated[float, Field(gt=0, lt=inf)]
_Shape = tuple[Annotated[int, Field(gt=0)], ...]


class _Fitted(BaseModel):
    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)

    n_features_in_: _Whole
    sample_shape_: _Shape = ()
    target_shape_: _Shape = ()
    classes_: Annotated[np.ndarray, AfterValidator(_row)] = np.empty(0)


class _Layerwise(_Fitted):
    interrupted_: bool


class _Convex(_Fitted):
    beta_: _Positive
    tol: _Positive
    beta_max_: Annotated[float, Field(ge=0, lt=inf)]
    solver_: str
    n_iter_: _Whole
    output: str = ""
    penalty: Annotated[Any, AfterValidator(_penalty)] = "nuclear"
    betas_: Annotated[np.ndarray, AfterValidator(_betas)] = np.ones(1)
    cv_scores_: Annotated[np.ndarray, AfterValidator(_scores)] | None = None


def check_model(model: ConvexEstimator | LayerwiseCNNClassifier, path: object) -> None:
    """Refuse in one sentence a file with attributes that no fit writes."""
    where = f"the damaged model file {path}"
    values = {"classes_": None} | vars(model) if is_classifier(model) else vars(model)
    if isinstance(model, LayerwiseCNNClassifier):
        validated(_Layerwise, values, where)
        return
    found = validated(_Convex, values, where)
    if found.cv_scores_ is not None and len(found.cv_scores_) != len(found.betas_):
        raise ValueError(f"{where}: 'cv_scores_' must be a table of {len(found.betas_)} rows; write the file again.")
    try:
        model._make_loss()
    except (ValueError, TypeError) as error:  # an unknown name, or no name at all
        raise ValueError(f"{where}: 'loss' must be a loss of this estimator; write the file again.") from error
