"""Estimators that choose beta by cross-validation along the regularisation path, as LassoCV does."""

from dataclasses import dataclass

from bidual.estimators.attention import ConvexAttentionClassifier, ConvexAttentionRegressor
from bidual.estimators.cnn import ConvexCNNClassifier, ConvexCNNRegressor
from bidual.estimators.cross_validation import CrossValidated
from bidual.estimators.general import ConvexClassifier, ConvexRegressor
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.parallel import ConvexParallelClassifier, ConvexParallelRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexMLPClassifierCV(CrossValidated, ConvexMLPClassifier):
    """:class:`ConvexMLPClassifier` with beta chosen by cross-validation along a warm-started path.

    Args:
        betas: the weight decays to try; by default ``n_betas`` below beta_max, down to ``beta_ratio`` times it.
        cv: folds, as in scikit-learn: their number, a splitter, or an iterable of (train, test); by default 5
            (stratified for classifiers), or as many as the smallest class has samples. Splitters that keep groups
            together, such as ``GroupKFold``, need ``fit(X, y, groups=...)``.
        scoring: how networks are judged on held-out samples: None for accuracy, of regressors for the loss, the name
            of a scikit-learn scorer such as "roc_auc", or a function ``scorer(estimator, X, y)`` whose larger values
            are better.
        cv_tol: the certified relative gap of the fits on folds; the last fit reaches ``tol``. ReLU networks under a
            smooth loss are not certified on folds: their descents end where ten steps gain less than a hundredth of it.
        max_time: a limit in seconds on every single fit, not on all of them together.
        n_jobs: folds that are fitted at the same time; None is 1, or what ``joblib.parallel_config`` says. The results
            are those of one after the other. docs/sweeps.md says how folds go to a cluster.
        callback: is called in the last fit only, not on folds.

    The other parameters are those of :class:`ConvexMLPClassifier`. ``class_weight`` counts in all fits and, like
    ``sample_weight``, in held-out accuracy and loss; "balanced" weights are those of all samples, for every fold.

    Attributes:
        beta_: the chosen beta, of several with the best score the middle one; ``alpha_`` of LassoCV and RidgeCV.
        betas_: the grid it comes from, shape (n_betas,); ``alphas_`` of LassoCV.
        cv_scores_: the score of every beta on every fold, shape (n_betas, n_folds), larger is better: accuracy, the
            negative loss per sample of regressors, or what ``scoring`` says; ``mse_path_`` of LassoCV, ``scores_`` of
            LogisticRegressionCV. Folds use ``betas_`` times their share of all weights, or of beta_max.
        best_score_: the mean score of the chosen beta; as in RidgeCV.
        scored_by_: what scores are: "accuracy", "loss" (whose negative they are), a scorer's name, or "score".
        best_index_: its row in ``betas_`` and ``cv_scores_``; as in GridSearchCV, like the next.
        n_splits_: the number of folds.

    The other attributes are those of :class:`ConvexMLPClassifier`, of the fit on all samples.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexMLPRegressorCV(CrossValidated, ConvexMLPRegressor):
    """:class:`ConvexMLPRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexCNNClassifierCV(CrossValidated, ConvexCNNClassifier):
    """:class:`ConvexCNNClassifier` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexCNNRegressorCV(CrossValidated, ConvexCNNRegressor):
    """:class:`ConvexCNNRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexAttentionClassifierCV(CrossValidated, ConvexAttentionClassifier):
    """:class:`ConvexAttentionClassifier` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexAttentionRegressorCV(CrossValidated, ConvexAttentionRegressor):
    """:class:`ConvexAttentionRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`.

    Held-out accuracy and loss of predictions per token are means over tokens. Scorers of scikit-learn take targets of
    at most two axes: pass y as (n, tokens * c) with ``output="tokens"``.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexParallelClassifierCV(CrossValidated, ConvexParallelClassifier):
    """:class:`ConvexParallelClassifier` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexParallelRegressorCV(CrossValidated, ConvexParallelRegressor):
    """:class:`ConvexParallelRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexClassifierCV(CrossValidated, ConvexClassifier):
    """:class:`ConvexClassifier` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexRegressorCV(CrossValidated, ConvexRegressor):
    """:class:`ConvexRegressor` with beta chosen by cross-validation; see :class:`ConvexMLPClassifierCV`."""
