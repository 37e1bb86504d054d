"""Multi-head self-attention as scikit-learn estimators."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import r2_score
from torch import Tensor

from bidual.architectures import GatedAttention, LinearAttention, ReluAttention
from bidual.estimators.base import Samples
from bidual.estimators.inputs import answers_in_kind, as_plain_array, as_targets
from bidual.estimators.parameters import one_of, parameter
from bidual.estimators.shaped import ShapedSamples, check_shape
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses.datafit import Datafit
from bidual.operators.patches import TokenPairs

_AXES = {2: "(tokens, features)"}


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexAttention(ShapedSamples):
    """What the attention classifier and regressor share: parameters, and heads that see pairs of tokens."""

    _shape_parameter, _what = "token_shape", "sequences"
    _axes = _AXES
    _gate_rows = "features^2"
    _families: ClassVar = {"linear": LinearAttention, "gated_relu": GatedAttention, "relu": ReluAttention}
    _auto_gates = 50
    _largest = 1e30  # predictions are of third order in X

    token_shape: Sequence[int] | None = parameter(None, check_shape(_AXES))
    hidden_bias: bool = field(default=False, init=False)

    @property
    def _average(self) -> bool:
        """Whether predictions are averaged over tokens."""
        return True

    def _geometry(self) -> tuple[object, ...]:
        return (self.sample_shape_,)

    def _patches(self, X: Tensor) -> TokenPairs:
        return TokenPairs(X, self._average)

    def _settings(self, X: Tensor) -> dict[str, Any]:
        return {"d": X.shape[2], "average": self._average}


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexAttentionClassifier(ClassifierTargets, ConvexAttention):
    """Multi-head self-attention classifier, averaged over tokens, trained to a certified global optimum.

    A head is act(X U X^T) X V, with the activation in place of softmax (BM eq. 8). It minimises ``sum_i w_i loss_i +
    beta * Omega(Z)``, where Omega is the weight decay 1/2 sum of squares of all U and V, over all numbers of heads: a
    convex program (BM eq. 104, 135, 136).

    Args:
        token_shape: (tokens, features), one of them may be -1; not needed where X is (n, tokens, features). Scores are
            of second order and predictions of third in X: standardise the features.
        activation: "gated_relu" (fixed random gates on pairs of tokens), "relu" or "linear".
        beta: the weight decay, in the scaling of a sum over samples; "auto" is a tenth of ``beta_max_``.
        n_gates: for "gated_relu", how many gates to sample, "auto" is 50.
        gates: for "gated_relu", own gates H_p (features, features), stacked by columns: shape (features^2, P).
        oracle, n_starts, penalty, loss, class_weight, solver, tol, max_iter, max_time, fit_intercept, random_state,
            warm_start, verbose, device, callback: as in :class:`ConvexMLPClassifier`; for "relu" the rank is
            features^2, and the solver is column generation.

    Attributes:
        certificate_, module_, beta_, beta_max_, n_neurons_, n_iter_, history_, solver_, classes_, n_features_in_: as in
            :class:`ConvexMLPClassifier`; ``module_`` takes sequences, and its ``maps`` are the attention maps;
            ``n_neurons_`` counts heads.
        sample_shape_: (tokens, features).
    """


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexAttentionRegressor(RegressorTargets, ConvexAttention):
    """Multi-head self-attention for regression: one prediction per sequence, or per token, as in denoising.

    Parameters are those of :class:`ConvexAttentionClassifier`, and

    Args:
        output: "sequence" (predictions are averaged over tokens, y is (n,) or (n, c)), "tokens" (y is (n, tokens, c),
            or flat (n, tokens * c)), or "auto": "tokens" where y has three axes.

    Attributes:
        target_shape_: the shape of one target, and of one prediction.
    """

    output: str = parameter("auto", one_of(("auto", "sequence", "tokens")))

    @property
    def _average(self) -> bool:
        return self.output == "sequence" or (self.output == "auto" and len(self.target_shape_) < 2)

    def _validate_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Samples:
        y, shape = _flat_targets(y)
        samples = super()._validate_fit(X, y, sample_weight)
        self.target_shape_ = shape or (() if self._flat else tuple(samples.Y.shape[1:]))
        return samples

    def _datafit(self, Y: Tensor, weight: Tensor | None) -> Datafit:
        """One row of targets per token, each with the weight of its sequence."""
        if self._average:
            return super()._datafit(Y, weight)
        tokens, shape = self.sample_shape_[0], self.target_shape_
        if Y.shape[1] % tokens or (len(shape) == 2 and shape[0] != tokens):
            raise ValueError(
                f"y needs one target for each of the {tokens} tokens, got targets of shape {shape}; use "
                "output='sequence' for one per sequence."
            )
        each = None if weight is None else weight.repeat_interleave(tokens)
        return super()._datafit(Y.reshape(len(Y) * tokens, -1), each)

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets, of the shape that y had."""
        outputs = self._means(X)
        return outputs.reshape(len(outputs), *self.target_shape_)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2, averaged over the numbers of a target."""
        truth, guess = _flat_targets(y)[0], _flat_targets(self.predict(as_plain_array(X)))[0]
        return float(r2_score(truth, guess, sample_weight=as_plain_array(sample_weight)))


def _flat_targets(y: Any) -> tuple[Any, tuple[int, ...]]:
    """Targets of three axes as rows, and the shape of one; others as they are, without."""
    y = as_targets(y)
    y = np.asarray(y) if isinstance(y, (list, tuple)) else y
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) > 3:
        raise ValueError(f"y must have shape (n,), (n, c) or (n, tokens, c), got {shape}.")
    return (y.reshape(shape[0], -1), shape[1:]) if len(shape) == 3 else (y, ())
