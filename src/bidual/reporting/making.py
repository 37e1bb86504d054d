"""`bidual.report`: from a result or a file to its page, and whether a model file holds what a fit writes."""

import os
from math import inf
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.estimators.certifying import NetworkCertificate
from bidual.estimators.paths import Path
from bidual.estimators.saving import load
from bidual.gauges import Gauge
from bidual.problems.certificate import Certificate
from bidual.reporting.fit import fit_report, layerwise_report
from bidual.reporting.page import Report
from bidual.reporting.results import certificate_report, judged_report, path_report
from bidual.reporting.written import written_report
from bidual.runtime.extras import need
from bidual.runtime.json_text import validated


def report(thing: Any, X: Any = None, y: ArrayLike | None = None, title: str | None = None) -> Report:
    """One self-contained HTML page of a result; it works offline and needs no other file.

    Args:
        thing: a fitted estimator (or a scikit-learn pipeline that ends in one), the :class:`Path` of
            :func:`regularization_path`, a :class:`Certificate`, what :func:`certify` returns, or a path: of a model
            file, of the JSON of `bidual fit`, `path` or `certify`, or of a reproduction's folder.
        X: samples to show an estimator on, as in ``fit``; they need not be the training samples.
        y: their targets or labels.
        title: of the page.
    """
    need("matplotlib", "jinja2", "markdown_it")
    if X is None and y is not None:
        raise ValueError("y was given without X; give both, or neither.")
    if isinstance(thing, (str, os.PathLike)):
        return _of_file(FilePath(thing), X, y, title)
    if isinstance(thing, Pipeline):
        check_is_fitted(thing[-1])
        return report(thing[-1], X if X is None or len(thing) == 1 else thing[:-1].transform(X), y, title)
    if isinstance(thing, (ConvexEstimator, LayerwiseCNNClassifier)):
        check_is_fitted(thing)
        make = layerwise_report if isinstance(thing, LayerwiseCNNClassifier) else fit_report
        return make(thing, X, y, title)
    if X is not None:
        raise ValueError(f"X and y are for estimators, got them with a {type(thing).__name__}; leave them out.")
    return _of_result(thing, title)


def _of_file(path: FilePath, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    if not path.exists():
        raise FileNotFoundError(f"cannot report {path}: there is no such file or folder; give one that was written.")
    if path.suffix.lower() == ".safetensors" and not path.is_dir():
        model = load(path)
        check_model(model, path)
        return report(model, X, y, title)
    if X is not None:
        raise ValueError(f"X and y are for models, and {path} is not a model; leave them out.")
    return written_report(path, title)


def _of_result(thing: Any, title: str | None) -> Report:
    if isinstance(thing, Path):
        return path_report(thing.rows, thing.beta_max, title)
    if isinstance(thing, NetworkCertificate):
        return judged_report(thing, title)
    if isinstance(thing, Certificate):
        return certificate_report(thing, title)
    raise ValueError(
        f"a report is of a fitted estimator, a path, a certificate or a file, got {type(thing).__name__}; give one "
        "of them."
    )


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
    """Refuse in one sentence a file with attributes that no fit writes, of those that a page shows."""
    where = f"the damaged model file {path}"
    values = {"classes_": None} | vars(model) if is_classifier(model) else vars(model)
    if isinstance(model, LayerwiseCNNClassifier):
        validated(_Layerwise, values, where)
        return
    found = validated(_Convex, values, where)
    if found.cv_scores_ is not None and len(found.cv_scores_) != len(found.betas_):
        raise ValueError(f"{where}: 'cv_scores_' must be a table of {len(found.betas_)} rows; write the file again.")
