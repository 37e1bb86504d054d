"""What users of scikit-learn expect of an estimator, end to end; single parts have files of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bidual
from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressorCV, ZCAWhitening, load
from bidual.losses import Quantile

GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 8, "tol": 1e-2}
LINEAR: dict[str, Any] = {"activation": "linear", "tol": 1e-2}
settings_that_stay_sparse = pytest.mark.parametrize("settings", [GATED, LINEAR], ids=["gated", "linear"])


def customers() -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Numbers and words by the names of their columns, answers, and shops that customers belong to."""
    rng = np.random.default_rng(0)
    age, town = rng.normal(40, 9, 90), rng.permutation(np.arange(90) % 60).astype(str)
    columns = {"age": age, "income": rng.lognormal(8, 1, 90), "town": town}
    return columns, np.where((age > 40) ^ (rng.random(90) < 0.1), "yes", "no"), np.arange(90) % 9


COLUMNS, ANSWERS, SHOPS = customers()
WIDTH = 62  # two numbers, sixty towns


def to_sparse() -> ColumnTransformer:
    parts = [("numbers", StandardScaler(), ["age", "income"]), ("words", OneHotEncoder(), ["town"])]
    return ColumnTransformer(parts, sparse_threshold=1.0)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def never_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a full array of sparse samples fails, with the constant of a hidden bias and without."""

    def refusing(method: Any) -> Any:
        def watched(matrix: Any, *given: Any, **more: Any) -> Any:
            n, width = matrix.shape
            assert width not in (WIDTH, WIDTH + 1) or n == width, "samples were written out"  # Gram matrices may be
            return method(matrix, *given, **more)

        return watched

    monkeypatch.setattr(torch.Tensor, "to_dense", refusing(torch.Tensor.to_dense))
    for format in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(format, name, refusing(getattr(format, name)))


@pytest.mark.usefixtures("never_written_out")
@pytest.mark.parametrize("hidden_bias", [True, False])
def test_writing_samples_out_is_noticed(hidden_bias: bool) -> None:
    """By networks of ReLU neurons, which need full samples."""
    given = to_sparse().fit_transform(pd.DataFrame(COLUMNS))
    with pytest.raises(AssertionError, match="samples were written out"):
        ConvexMLPClassifier(hidden_bias=hidden_bias).fit(given, ANSWERS)


@pytest.mark.usefixtures("routing", "never_written_out")
@settings_that_stay_sparse
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_words_become_sparse_columns_scored_on_groups_in_a_pipeline(settings: dict[str, Any], library: str) -> None:
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    table, answers = frames.DataFrame(COLUMNS), frames.Series(ANSWERS.tolist())
    network = ConvexMLPClassifierCV(**settings, n_betas=3, scoring="roc_auc", cv=GroupKFold(3), class_weight="balanced")
    model = Pipeline([("columns", to_sparse()), ("network", network)])
    model.fit(table, answers, groups=frames.Series(SHOPS))
    samples = model["columns"].transform(table)
    assert sparse.issparse(samples)
    assert model["network"].cv_scores_.shape == (3, 3)
    assert 0.8 < model["network"].best_score_ <= 1
    assert model["network"].n_features_in_ == samples.shape[1] == WIDTH
    assert roc_auc_score(ANSWERS, model.decision_function(table)) > 0.85
    assert set(model.predict(table)) == {"yes", "no"}


@settings_that_stay_sparse
@pytest.mark.parametrize("format", [sparse.csr_array, sparse.csc_matrix])
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
def test_folds_of_sparse_samples_stay_sparse(settings: dict[str, Any], format: Any, scoring: Any, request: Any) -> None:
    given, targets = format(to_sparse().fit_transform(pd.DataFrame(COLUMNS))), COLUMNS["age"] / 40
    request.getfixturevalue("never_written_out")
    model = ConvexMLPRegressorCV(**settings, n_betas=2, cv=2, scoring=scoring).fit(given, targets)
    assert model.predict(given).shape == (90,)
    assert model.score(given, targets) > 0.5


def test_names_go_through_a_pipeline_of_frames() -> None:
    table = pd.DataFrame({name: COLUMNS[name] for name in ("age", "income")})
    model = make_pipeline(StandardScaler(), ZCAWhitening(), ConvexMLPClassifier(**LINEAR))
    model.set_output(transform="pandas").fit(table, ANSWERS)
    assert model.feature_names_in_.tolist() == ["age", "income"]
    assert model[:-1].get_feature_names_out().tolist() == ["age", "income", "zca_constant"]
    assert model[-1].feature_names_in_.tolist() == ["age", "income", "zca_constant"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_own_tools_search_score_and_clone(library: str, tmp_path: Path) -> None:
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    table = frames.DataFrame({name: COLUMNS[name] for name in ("age", "income")})
    answers = frames.Series(ANSWERS.tolist())
    model = make_pipeline(StandardScaler(), ConvexMLPClassifier(**LINEAR, class_weight={"yes": 2.0}))
    search = GridSearchCV(model, {"convexmlpclassifier__beta": [0.1, 1e4]}, scoring="roc_auc", cv=2)
    assert search.fit(table, answers).best_params_ == {"convexmlpclassifier__beta": 0.1}
    assert cross_val_score(model, table, answers, scoring="roc_auc", cv=3).min() > 0.8
    best = search.best_estimator_[-1]
    again = clone(best)
    assert {**again.get_params()} == best.get_params()
    assert not hasattr(again, "module_")
    best.save(tmp_path / "model")
    scaled = search.best_estimator_[:-1].transform(table)
    np.testing.assert_array_equal(load(tmp_path / "model").predict(scaled), search.predict(table))


def test_what_is_chosen_has_the_names_of_ridge_and_lasso() -> None:
    """alpha is beta here; RidgeCV tells its best score, LassoCV the grid."""
    X, y = np.random.default_rng(0).standard_normal((30, 3)), np.arange(30.0)
    ours = ConvexMLPRegressorCV(**LINEAR, n_betas=4, cv=2).fit(X, y)
    ridge, lasso = RidgeCV().fit(X, y), LassoCV(cv=2).fit(X, y)
    for theirs, names in ((ridge, ("alpha_", "best_score_")), (lasso, ("alpha_", "alphas_", "n_iter_"))):
        for name in names:
            assert hasattr(theirs, name)
            assert np.ndim(getattr(ours, name.replace("alpha", "beta"))) == np.ndim(getattr(theirs, name))
    assert ours.beta_ in ours.betas_


UNFIT: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a class that is not there": (
        ConvexMLPClassifierCV(class_weight={"maybe": 2}, cv=2),
        {},
        r"^class_weight names 'maybe', which is none of the classes \['no', 'yes'\]; drop it.$",
    ),
    "areas by probabilities of hinge": (
        bidual.ConvexCNNClassifierCV(loss="hinge", scoring="roc_auc_ovr", cv=2, image_shape=(1, -1)),
        {},
        "^scoring='roc_auc_ovr' needs predict_proba, which ConvexCNNClassifierCV with loss='hinge' does not have; use",
    ),
    "sparse images": (
        bidual.ConvexCNNClassifierCV(image_shape=(1, -1), cv=2),
        {"X": sparse.csr_array(np.eye(90))},
        r"^images must be full arrays, got a sparse csr_array; pass X.toarray\(\)",
    ),
    "sparse sequences": (
        bidual.ConvexAttentionRegressorCV(token_shape=(1, -1), cv=2),
        {"X": sparse.csc_matrix(np.eye(90)), "y": np.arange(90.0)},
        r"^sequences must be full arrays, got a sparse csc_matrix; pass X.toarray\(\)",
    ),
    "negative counts": (
        ConvexMLPRegressorCV(loss="poisson", cv=2),
        {"y": np.arange(90.0) - 1},
        "^poisson loss needs targets of at least zero, got -1; use",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_bad_input_of_cross_validation_is_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given, message = UNFIT[name]
    monkeypatch.setattr(bidual.estimators.cross_validation, "fold_tasks", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=message) as refusal:
        model.fit(**{"X": np.random.default_rng(0).standard_normal((90, 3)), "y": ANSWERS} | given)
    assert "\n" not in str(refusal.value)
    assert not hasattr(model, "beta_max_")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_quantiles_are_inside_of_zero_and_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^quantile must be a number between 0 and 1, got .*; 0\.5 is the median\.$"):
        Quantile(value)
