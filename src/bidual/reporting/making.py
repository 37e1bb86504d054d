"""`bidual.report`: from a result or a file to its page."""

import os
from pathlib import Path as FilePath
from typing import Any

from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.estimators.certifying import NetworkCertificate
from bidual.estimators.paths import Path
from bidual.estimators.saving import load
from bidual.problems.certificate import Certificate
from bidual.reporting.fit import fit_report, layerwise_report
from bidual.reporting.model_checks import check_model
from bidual.reporting.page import Report
from bidual.reporting.results import certificate_report, judged_report, path_report
from bidual.reporting.written import written_report
from bidual.runtime.extras import need


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
        return _of_model(path, X, y, title)
    if X is not None:
        raise ValueError(f"X and y are for models, and {path} is not a model; leave them out.")
    return written_report(path, title)


def _of_model(path: FilePath, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    model = load(path)
    check_model(model, path)
    return report(model, X, y, title)


def _of_result(thing: Any, title: str | None) -> Report:
    if isinstance(thing, Path):
        return path_report(thing.rows, thing.beta_max, title)
    if isinstance(thing, NetworkCertificate):
        return judged_report(thing, {}, title)
    if isinstance(thing, Certificate):
        return certificate_report(thing, title)
    raise ValueError(
        f"a report is of a fitted estimator, a path, a certificate or a file, got {type(thing).__name__}; give one "
        "of them."
    )
