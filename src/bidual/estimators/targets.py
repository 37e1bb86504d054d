"""How labels and regression targets become the matrix Y, and how outputs become predictions."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bidual.losses import Loss, resolve_loss


def _has_probabilities(estimator: Any) -> bool:
    try:
        return resolve_loss(estimator.loss, 1).gives_probabilities
    except ValueError:  # no loss at all, which fit refuses
        return False


class ClassifierTargets(ClassifierMixin):
    """The loss says how labels become targets, and how outputs become probabilities.

    ``loss="auto"`` is squared loss, as in the papers: it was the most accurate on the UCI sets (docs/uci.md) and is the
    fastest. ``"log_loss"`` is logistic for two classes and softmax cross-entropy for more, and gives probabilities.
    """

    _numeric_targets = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def _make_loss(self) -> Loss:
        return resolve_loss(self.loss, 1 if len(self.classes_) == 2 else len(self.classes_))

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"a classifier needs at least two classes in y of positive weight, got one class only: {classes}; add "
                "samples of another class."
            )
        self.classes_ = classes
        loss = self._make_loss()
        return loss.encode(codes, loss.n_outputs(len(classes)))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Raw scores: shape (n,) for two classes (positive means the second), else (n, n_classes)."""
        outputs = self._outputs(X)
        if outputs.shape[1] == 2:
            return outputs[:, 1] - outputs[:, 0]
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of every sample."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        return self.classes_[index]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities; only for the losses that define them, such as logistic and softmax."""
        return self._make_loss().probabilities(torch.from_numpy(self._outputs(X))).numpy()

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X))


class RegressorTargets(RegressorMixin):
    """Targets as they are, one output per column; ``loss="auto"`` is squared."""

    _numeric_targets = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _make_loss(self) -> Loss:
        loss = resolve_loss(self.loss)
        if loss.classification:
            raise ValueError(f"{loss.name} loss is for classifiers; use 'squared', 'huber' or 'absolute' here.")
        return loss

    def _encode_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        self._make_loss()
        self._flat = y.ndim == 1
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets, of the shape that y had."""
        check_is_fitted(self)
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs
