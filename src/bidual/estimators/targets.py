"""Labels and numbers as targets of a loss, and outputs as classes, probabilities and predictions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bidual.estimators.availability import only_where
from bidual.estimators.class_weights import ClassWeight, check_class_weight, class_weighted
from bidual.estimators.inputs import answers_in_kind, as_plain_array, as_targets
from bidual.estimators.parameters import parameter
from bidual.losses import Loss, resolve_loss
from bidual.runtime.json_text import one_line


def classes_and_codes(y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes in order, at least two, and the index of every label."""
    y = column_or_1d(y, warn=True)
    try:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:  # from sorting them
        raise ValueError(
            f"labels must be all numbers or all strings, got both or something else ({one_line(error)}); convert them, "
            "or drop samples without a label."
        ) from error
    if len(classes) < 2:
        raise ValueError(
            f"a classifier needs samples of at least two classes, got {_none_or_one(classes)}; add samples of another "
            "class, or weights that are not zero."
        )
    return classes, codes


def _none_or_one(classes: NDArray[Any]) -> str:
    return f"one class only: {classes}" if len(classes) else "none that has a weight"


def _check_probabilities(estimator: Any) -> None:
    (estimator.loss_ if hasattr(estimator, "loss_") else resolve_loss(estimator._loss_named, 1)).check_probabilities()


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierTargets(ClassifierMixin):
    """The loss says how labels become targets, and how outputs become probabilities.

    ``loss="auto"`` is squared loss, as in the papers, whose probabilities are the outputs, projected onto the simplex;
    for MLPs with ReLU neurons it is log loss (docs/uci.md). ``"log_loss"`` is logistic for two classes and
    softmax cross-entropy for more. Classifiers are dataclasses themselves, with the fields of both parents.
    """

    class_weight: ClassWeight = parameter(None, check_class_weight)

    _numeric_targets = False

    def _make_loss(self) -> Loss:
        return resolve_loss(self._loss_named, 1 if len(self.classes_) == 2 else len(self.classes_))

    @property
    def _loss_named(self) -> str | Loss:
        """The loss, where "auto" may mean another one than squared."""
        return self.loss

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        self.classes_, codes = classes_and_codes(y)
        self.loss_ = self._make_loss()
        return self.loss_.encode(codes, self.loss_.n_outputs(len(self.classes_)))

    def _class_weighted(self, y: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        codes = np.searchsorted(self.classes_, np.ravel(y))
        return class_weighted(self.class_weight, self.classes_, codes, weight)

    @answers_in_kind
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Raw scores: shape (n,) for two classes (positive means the second), else (n, n_classes)."""
        outputs = self._outputs(X)
        if outputs.shape[1] == 2:
            return outputs[:, 1] - outputs[:, 0]
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of every sample: the one with the largest score, and of equal ones the first."""
        outputs = torch.from_numpy(self._outputs(X))
        return self.classes_[self.loss_.likeliest(outputs).numpy()]

    @only_where(_check_probabilities)
    @answers_in_kind
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of every class (n, n_classes), the largest being that of :meth:`predict`.

        Outputs of squared loss are projected onto the simplex, those of log loss go through the logistic function or
        the softmax. Losses whose outputs tell no probabilities, such as hinge, do not have this method.
        """
        outputs = torch.from_numpy(self._outputs(X))
        return self.loss_.probabilities(outputs).numpy()

    @only_where(_check_probabilities)
    @answers_in_kind
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of :meth:`predict_proba`, -inf where that is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of samples whose class is predicted right."""
        return super().score(as_plain_array(X), as_targets(y), as_plain_array(sample_weight))


def _numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"targets of a regressor must be numbers ({one_line(error)}); use a classifier for labels."
        ) from error


class RegressorTargets(RegressorMixin):
    """Targets as they are, one output per column; ``loss="auto"`` is squared.

    ``score`` is R^2 of ``predict``, whatever the loss.
    """

    _numeric_targets = True

    def _make_loss(self) -> Loss:
        loss = resolve_loss(self.loss, 1)
        if loss.classification:
            others = "'squared', 'huber', 'absolute', 'quantile' or 'poisson'"
            name = "log" if self.loss == "log_loss" else loss.name
            raise ValueError(f"{name} loss is for classifiers; use {others} here.")
        return loss

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        loss = self.loss_ = self._make_loss()
        self._flat = y.ndim == 1
        targets = _numbers(y).reshape(len(y), -1)
        if loss.counts and self.fit_intercept and not targets.any():
            raise ValueError(
                f"{loss.name} loss needs a count above zero, got zeros only, whose best intercept is minus infinity; "
                "add samples, or set fit_intercept=False."
            )
        return targets

    def _means(self, X: ArrayLike) -> NDArray[np.float64]:
        """What the loss says that the network's outputs are about."""
        outputs = self._outputs(X)
        return self.loss_.mean(torch.from_numpy(outputs)).numpy()

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets, of the shape that y had; with Poisson loss their means, exp of the network's outputs."""
        outputs = self._means(X)
        return outputs[:, 0] if self._flat else outputs

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2, averaged over targets."""
        return super().score(as_plain_array(X), as_targets(y), as_plain_array(sample_weight))
