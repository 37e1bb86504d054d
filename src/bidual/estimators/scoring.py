"""Scorers of scikit-learn for held-out samples, checked before any work."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from math import isnan
from numbers import Real
from typing import Any, Self

import sklearn
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring as resolved
from sklearn.metrics import get_scorer_names
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params
from torch import Tensor

from bidual.estimators.inputs import as_plain_array

Scorer = Callable[..., Any]


def check_scoring(value: Any) -> None:
    """Refuse what is neither None, a name, nor a function of an estimator, samples and targets."""
    if value is None or callable(value):
        if value is not None:
            resolved(scoring=value)  # refuses a metric, which has no estimator among its arguments
    elif not isinstance(value, str) or value not in get_scorer_names():
        raise ValueError(
            f"scoring must be None, a name in sklearn.metrics.get_scorer_names() or a scorer(estimator, X, y), got "
            f"{value!r}."
        )


def scorer_of(scoring: str | Scorer | None) -> Scorer | None:
    """The scorer of what :func:`check_scoring` allows; None for what estimators have themselves."""
    return None if scoring is None else resolved(scoring=scoring)


def check_responses(estimator: Any, scorer: Scorer) -> None:
    """Refuse a scorer that asks for probabilities, or other outputs, that the estimator does not have."""
    asked = getattr(scorer, "_response_method", ())
    methods = [asked] if isinstance(asked, str) else list(asked)
    if not methods or any(hasattr(estimator, method) for method in methods):
        return
    loss = getattr(estimator.loss, "name", estimator.loss)
    other = "a loss with probabilities such as 'log_loss', or a scoring of classes such as 'accuracy'"
    raise ValueError(
        f"scoring={estimator.scoring!r} needs {' or '.join(methods)}, which {type(estimator).__name__} with "
        f"loss={loss!r} does not have; use {other if is_classifier(estimator) else 'one for regressors such as r2'}."
    )


def takes_weights(scorer: Scorer) -> bool:
    """Whether a scorer has an argument ``sample_weight``, for its metric or its own."""
    of_metric = getattr(scorer, "_accept_sample_weight", None)
    if of_metric is not None:
        return bool(of_metric())
    try:
        return "sample_weight" in signature(scorer).parameters
    except ValueError:  # written in C, without a signature
        return False


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out samples as they were given to ``fit``, and the scorer that judges networks on them.

    Attributes:
        scorer: called with a fitted estimator, X and y.
        fold: the number of the fold.
        metadata: further arguments of the scorer, such as ``sample_weight``.
        config: of scikit-learn, which workers do not inherit.
    """

    scorer: Scorer
    fold: int
    X: Any
    y: Any
    metadata: Mapping[str, Any]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, scorer: Scorer, fold: int, rows: NDArray[Any], X: Any, y: Any, metadata: Mapping[str, Any]) -> Self:
        """Some rows of what scikit-learn can index, and of tensors that are sparse or have a gradient."""
        X, y = _indexable(X), _indexable(y)
        some = (_safe_indexing(X, rows), _safe_indexing(y, rows), _check_method_params(X, dict(metadata), rows))
        return cls(scorer, fold, *some, sklearn.get_config())

    def score(self, estimator: Any) -> float:
        """How good a fitted estimator is; larger is better."""
        with sklearn.config_context(**self.config):
            found = self.scorer(estimator, self.X, self.y, **self.metadata)
        if not isinstance(found, Real) or isnan(found):
            raise ValueError(
                f"scoring={estimator.scoring!r} must give one number for each fold, got {found!r} for the held-out "
                f"part of fold {self.fold}; use another scoring, or folds on which it is defined."
            )
        return float(found)

    def check(self, constant: Any) -> None:
        """Refuse samples that a scorer of scikit-learn cannot score, tried with a network that is constant."""
        try:
            with warnings.catch_warnings(), sklearn.config_context(**self.config):
                warnings.simplefilter("ignore")  # of constant predictions
                self.scorer(constant, self.X, self.y, **self.metadata)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"scoring={constant.scoring!r} cannot score the held-out part of fold {self.fold}: "
                f"{' '.join(str(error).split()).rstrip('.')}; use another scoring, or other folds."
            ) from error


def _indexable(values: Any) -> Any:
    """Sparse tensors as scipy has them, in rows, and others without their gradient; all else as it is."""
    if not isinstance(values, Tensor):
        return values
    return values.detach() if values.layout is torch.strided else as_plain_array(values).tocsr()
