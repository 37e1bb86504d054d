import copy
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bidual
from bidual.problems.certificate import Certificate, Scope
from bidual.problems.solution import Record
from bidual.reporting import making
from bidual.reporting.making import check_model
from bidual.reporting.samples import activity
from helpers.report_tools import LABELS, MARKED, NUMBERS, X, assert_self_contained, text_of

rng = np.random.default_rng(1)
IMAGES = rng.standard_normal((30, 1, 6, 6))
TOKENS = rng.standard_normal((30, 4, 2))
HALF = np.arange(30) % 2
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 6, "tol": 1e-2}

CASES: dict[str, tuple[Any, Any, Any, set[str]]] = {
    "relu classes": (
        bidual.ConvexMLPClassifier(tol=1e-2),
        X,
        LABELS,
        {"Decision boundary", "Confusion matrix", "Neurons"},
    ),
    "gated classes": (bidual.ConvexMLPClassifier(**GATED), X, LABELS, {"Active patterns", "Gap over time"}),
    "linear": (
        bidual.ConvexMLPRegressor(activation="linear"),
        X,
        NUMBERS,
        {"Predicted surface", "Predictions and targets"},
    ),
    "one feature": (bidual.ConvexMLPRegressor(tol=1e-2), X[:, :1], NUMBERS, {"Prediction curve"}),
    "two outputs": (bidual.ConvexMLPRegressor(**GATED), X, np.c_[NUMBERS, X[:, 0]], {"Predictions and targets"}),
    "cv": (bidual.ConvexMLPClassifierCV(n_betas=3, cv=2, **GATED), X, LABELS, {"Cross-validation"}),
    "cnn": (bidual.ConvexCNNClassifier(**GATED), IMAGES, HALF, {"Learned filters", "Filters", "Active patterns"}),
    "attention": (bidual.ConvexAttentionClassifier(**GATED), TOKENS, HALF, {"Attention maps", "Heads"}),
    "tokens": (bidual.ConvexAttentionRegressor(**GATED), TOKENS, TOKENS, {"Attention maps", "Predictions and targets"}),
    "parallel": (bidual.ConvexParallelRegressor(tol=0.1, max_time=2), X[:12], NUMBERS[:12], {"Sub-networks"}),
    "gated parallel": (
        bidual.ConvexParallelClassifier(activation="gated_relu", n_subnetworks=6, tol=1e-2),
        X,
        LABELS,
        {"Sub-networks", "Decision boundary"},
    ),
    "layerwise": (
        bidual.LayerwiseCNNClassifier(stages=2, n_gates=4, epochs=1, certificate_samples=10, learning_rate=0.05),
        IMAGES,
        HALF,
        {"Certificates", "Training", "Learned filters", "Confusion matrix"},
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_every_family(name: str, tmp_path: Path) -> None:
    estimator, samples, targets, wanted = CASES[name]
    estimator.fit(samples, targets)
    page = bidual.report(estimator, samples, targets)
    assert wanted | {"Summary", "Settings"} <= set(page.sections)
    assert_self_contained(page.html)
    estimator.save(str(tmp_path / "model.safetensors"))
    bare = bidual.report(tmp_path / "model.safetensors")
    assert "bidual.report(model, X, y)" in text_of(bare.html)
    assert not {"Confusion matrix", "Decision boundary", "Active patterns", "Attention maps"} & set(bare.sections)


@pytest.mark.parametrize(("scoring", "words"), [(None, "accuracy largest"), ("neg_log_loss", "neg_log_loss largest")])
def test_folds_are_shown_with_what_they_were_judged_by(scoring: str | None, words: str) -> None:
    (what, best), model = words.split(), bidual.ConvexMLPClassifierCV(n_betas=3, cv=2, scoring=scoring, **GATED)
    text = text_of(bidual.report(model.fit(X, LABELS)).html)
    assert f"Mean {what} on held-out folds for 3 weight decays; one with the {best} was chosen." in text
    assert f">held-out {what}<" in text


def test_folds_of_regressors_are_shown_with_their_loss() -> None:
    model = bidual.ConvexMLPRegressorCV(n_betas=3, cv=2, **GATED).fit(X, X[:, 0])
    text = text_of(bidual.report(model).html)
    assert "Mean loss on held-out folds for 3 weight decays; one with the smallest was chosen." in text


@pytest.fixture(scope="module")
def fitted() -> bidual.ConvexMLPClassifier:
    return bidual.ConvexMLPClassifier(loss="squared", tol=1e-3).fit(X, LABELS)


def test_words_of_a_fit(fitted: bidual.ConvexMLPClassifier) -> None:
    text = text_of(bidual.report(fitted, X, LABELS, title="A <title>").html)
    assert "<title>A &lt;title&gt;</title>" in text
    assert f"{fitted.n_neurons_} neurons" in text
    assert "&lt;b&gt;no&lt;/b&gt;" in text
    assert "every two-layer ReLU network, of any width" in text
    assert f"accuracy is <strong>{fitted.score(X, LABELS):.4g}</strong>" in text


def test_foreign_names_are_shown_as_they_are() -> None:
    """As the name of a class, of a feature, and of what mistakes are taken for."""
    labels = np.array([MARKED, "no"])[np.arange(36) % 2]
    frame = pd.DataFrame(X, columns=[MARKED, "`y`"])
    classes = bidual.ConvexMLPClassifier(**GATED).fit(frame, labels)
    surface = bidual.ConvexMLPRegressor(**GATED).fit(frame, NUMBERS)
    first, second = (
        text_of(bidual.report(model, frame, y).html) for model, y in ((classes, labels), (surface, NUMBERS))
    )
    for text in (first, second):
        assert text.count("**x** &lt;b&gt;") >= 2
        assert not re.search(r"<strong>x|<code>y|<b>", text)
    assert "(**x** &lt;b&gt;, no), trained on" in first
    assert "<td>**x** &lt;b&gt;</td>" in first
    assert "plane of **x** &lt;b&gt; and `y`, and the samples.</figcaption>" in second


def test_objectives_never_look_equal() -> None:
    """However small they are; gaps need no such digits."""
    point = torch.zeros(1, 1, 1, dtype=torch.float64)
    certificate = Certificate(1.234567e-5, 1.234566e-5, point, point[0], 1.0, Scope.BLOCKS)
    text = text_of(bidual.report(certificate).html)
    assert "<strong>1.234567e-05</strong>" in text
    assert "<strong>1.234566e-05</strong>" in text
    assert "<strong>8.1e-07</strong>" in text


def test_prices_add_up_to_the_objective(fitted: bidual.ConvexMLPClassifier) -> None:
    units = fitted.module_.units
    one_hot = (LABELS[:, None] == fitted.classes_).astype(float)
    loss = 0.5 * float(((fitted._outputs(X) - one_hot) ** 2).sum())
    assert units is not None
    assert loss + fitted.beta_ * units.prices.sum() == pytest.approx(fitted.certificate_.primal, rel=1e-6)


def test_activity_counts_patterns(fitted: bidual.ConvexMLPClassifier) -> None:
    found = activity(fitted.module_, torch.tensor(X))
    on = fitted.module_.hidden(torch.tensor(X)).detach().numpy() > 0
    assert found is not None
    np.testing.assert_array_equal(found.shares, on)
    assert found.n_patterns == len(np.unique(on.T, axis=0))


def test_a_pipeline() -> None:
    model = make_pipeline(StandardScaler(), bidual.ConvexMLPClassifier(**GATED)).fit(X, LABELS)
    page = bidual.report(model, X, LABELS)
    assert f"accuracy is <strong>{model.score(X, LABELS):.4g}</strong>" in page.html


def test_many_neurons_are_cut_and_said() -> None:
    model = bidual.ConvexMLPRegressor(activation="gated_relu", n_gates=300, beta=1e-4, tol=0.1, penalty="frobenius")
    samples = rng.standard_normal((60, 5))
    page = bidual.report(model.fit(samples, np.sin(3 * samples)))
    assert len(model.module_.output.weight.T) > 200
    assert "the 200 with the highest price" in page.html


def test_paths_and_certificates(fitted: bidual.ConvexMLPClassifier) -> None:
    path = bidual.regularization_path(bidual.ConvexMLPClassifier(**GATED), X, LABELS, n_betas=4, ratio=0.1)
    page = bidual.report(path)
    assert page.sections == ("Summary", "Regularisation path", "Certificates", "Networks")
    assert_self_contained(page.html)
    page = bidual.report(fitted.certificate_)
    assert f"{fitted.certificate_.dual:.9g}" in page.html
    network = MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, random_state=0).fit(X, NUMBERS)
    found = bidual.certify(network, X, NUMBERS, 0.5, tol=1e-2)
    html = bidual.report(found).html
    assert f"{found.lower_bound:.9g}" in html
    assert found.verdict.split(". ")[0] in html
    assert_self_contained(html)


def test_pages_are_the_same_every_time(fitted: bidual.ConvexMLPClassifier) -> None:
    assert bidual.report(fitted, X, LABELS).html == bidual.report(fitted, X, LABELS).html


RECORDS = (Record("<b>", 1, 0.1, 1.0, 0.5, 0.5), Record("<b>", 2, math.inf, 1.0, 1.0, math.nan))


@pytest.mark.parametrize(
    ("name", "value"),
    [("history_", RECORDS), ("solver_", "<script>"), ("solver_", MARKED), ("beta_max_", 0), ("n_iter_", 3)],
)
def test_a_strange_model_file(fitted: bidual.ConvexMLPClassifier, name: str, value: Any, tmp_path: Path) -> None:
    html = bidual.report(_saved(fitted, name, value, tmp_path)).html
    assert_self_contained(html)
    assert "<b>" not in html
    assert "<strong>x" not in html


def _saved(model: Any, name: str, value: Any, folder: Path) -> Path:
    """The file of a model with one attribute that is another."""
    broken = copy.copy(model)
    setattr(broken, name, value)
    broken.save(str(folder / "model.safetensors"))
    return folder / "model.safetensors"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta_", "<b>"),
        ("beta_", None),
        ("beta_max_", None),
        ("beta_max_", "inf"),
        ("solver_", 3),
        ("n_iter_", [1]),
        ("tol", "x"),
        ("loss_", "squared"),
        ("loss_", [1]),
        ("penalty", np.ones(3)),
        ("cv_scores_", "x"),
    ],
)
def test_a_damaged_model_file(fitted: bidual.ConvexMLPClassifier, name: str, value: Any, tmp_path: Path) -> None:
    path = _saved(fitted, name, value, tmp_path)
    with pytest.raises(ValueError, match="damaged model file") as caught:
        bidual.report(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("name", "value"), [("seconds", None), ("relative_gap", "0.1"), ("solver", 3)])
def test_a_damaged_history(fitted: bidual.ConvexMLPClassifier, name: str, value: Any, tmp_path: Path) -> None:
    broken = copy.copy(fitted)
    broken.history_ = (copy.copy(RECORDS[0]),)
    object.__setattr__(broken.history_[0], name, value)
    broken.save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=rf"m.safetensors is a damaged model file \('{name}' must be of type"):
        bidual.report(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "wrong",
    [
        {"cv_scores_": np.ones((2, 2)), "betas_": np.ones(3)},
        {"cv_scores_": np.ones((2, 0)), "betas_": np.ones(2)},
        {"cv_scores_": np.ones((2, 2)), "betas_": -np.ones(2)},
        {"sample_shape_": "ab"},
        {"n_features_in_": 2.0},
        {"classes_": np.array([["a", "b"], ["c", "d"]])},
    ],
)
def test_damaged_attributes(fitted: bidual.ConvexMLPClassifier, wrong: dict[str, Any]) -> None:
    broken = copy.copy(fitted)
    vars(broken).update(wrong)
    with pytest.raises(ValueError, match=rf"damaged model file some: '({'|'.join(wrong)})' must be"):
        check_model(broken, "some")


def test_errors_of_ours_are_not_the_files(
    fitted: bidual.ConvexMLPClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise AttributeError("ours")

    fitted.save(str(tmp_path / "model.safetensors"))
    monkeypatch.setattr(making, "fit_report", wrong)
    with pytest.raises(AttributeError, match="ours"):
        bidual.report(tmp_path / "model.safetensors")


def test_refusals(fitted: bidual.ConvexMLPClassifier, tmp_path: Path) -> None:
    for wrong, message in (
        ((fitted, None, LABELS), "y was given without X"),
        ((fitted, X, LABELS[:5]), "X has 36 samples and y has 5"),
        ((fitted, X, np.full(36, "maybe")), "'maybe'"),
        ((fitted, X[:, :1], LABELS), "feature"),
        ((fitted.certificate_, X, None), "are for estimators"),
        (("no/such/file", None, None), "no such file"),
        ((3, None, None), "got int"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            bidual.report(*wrong)
    with pytest.raises(NotFittedError):
        bidual.report(bidual.ConvexMLPClassifier())
