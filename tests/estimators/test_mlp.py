"""What users rely on: labels, shapes, names, weights, warm starts, and a network that is what the certificate says."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ConvexMLPRegressorCV
from bidual.losses import LOSSES, Huber
from bidual.patterns import activations, with_constant
from bidual.problems.certificate import Scope

RELU = {"tol": 1e-5}
GATED = {"activation": "gated_relu", "n_gates": 20, "tol": 1e-5}
SMALL = {"relu": RELU, "gated_relu": GATED}


@pytest.fixture(params=SMALL)
def small(request):
    """Settings of a small certified network, for what holds with every activation."""
    return SMALL[request.param]


@pytest.fixture
def three_classes():
    """With a hidden bias of rank 3: a ReLU network is certified over all patterns."""
    return make_classification(
        24, 2, n_informative=2, n_redundant=0, n_classes=3, n_clusters_per_class=1, random_state=0
    )


@pytest.fixture
def numbers():
    return make_regression(20, 2, n_targets=2, noise=1.0, random_state=0)


PENALISED = [(a, p) for a in ("gated_relu", "linear") for p in ("nuclear", "frobenius", "per_output")]


@pytest.mark.parametrize(("activation", "penalty"), [("relu", "nuclear"), *PENALISED])
def test_the_network_costs_what_the_certificate_says(numbers, activation, penalty):
    X, y = numbers
    fit = ConvexMLPRegressor(**{**SMALL.get(activation, RELU), "activation": activation}, penalty=penalty).fit(X, y)
    loss = 0.5 * np.sum((fit.predict(X) - y) ** 2)
    price = fit.architecture_.regulariser(fit.module_)
    assert loss + fit.beta_ * price == pytest.approx(fit.certificate_.primal, rel=1e-9)
    assert fit.certificate_.relative_gap <= 1e-5
    assert fit.certificate_.scope is (Scope.ALL_PATTERNS if activation == "relu" else Scope.BLOCKS)


def test_a_relu_network_of_high_rank_says_by_its_gap_what_is_not_proved():
    X, y = make_regression(30, 9, n_targets=2, noise=1.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="is above tol=0.001"):
        fit = ConvexMLPRegressor(tol=1e-3, oracle="search", n_starts=64).fit(X, y)
    certificate = fit.certificate_
    assert certificate.scope is Scope.ALL_PATTERNS
    assert 1e-3 < certificate.relative_gap <= 1
    linear = ConvexMLPRegressor(activation="linear", beta=2 * fit.beta_).fit(X, y)
    assert certificate.primal <= linear.certificate_.primal
    assert r2_score(y, fit.predict(X)) > 0.9


def test_a_relu_optimum_is_at_most_that_of_any_relu_network_of_the_same_beta(numbers):
    X, y = numbers
    fit = ConvexMLPRegressor(beta=10.0, **RELU).fit(X, y)
    searched = ConvexMLPRegressor(beta=10.0, oracle="search", n_starts=8, max_time=1, **RELU).fit(X, y)
    assert fit.certificate_.dual <= searched.certificate_.primal
    assert searched.certificate_.dual <= fit.certificate_.primal


def test_weight_decay_of_the_plain_module_is_the_nuclear_price(numbers, small):
    fit = ConvexMLPRegressor(**small).fit(*numbers)
    hidden, output = fit.module_.hidden, fit.module_.output
    decay = 0.5 * sum(float(t.detach().square().sum()) for t in (hidden.weight, hidden.bias, output.weight))
    assert decay == pytest.approx(fit.architecture_.regulariser(fit.module_), rel=1e-9)


@pytest.mark.parametrize("names", [["a", "b", "c"], [7, 3, 5], [True, False]])
def test_labels_of_any_kind(three_classes, names, small):
    X, y = three_classes
    labels = np.array(names)[y % len(names)]
    fit = ConvexMLPClassifier(loss="log_loss", **small).fit(X, labels)
    assert set(fit.classes_) == set(names)
    assert fit.score(X, labels) > 0.6
    assert fit.predict_proba(X).sum(1) == pytest.approx(np.ones(len(X)))
    assert (fit.classes_[fit.predict_proba(X).argmax(1)] == fit.predict(X)).all()


KINKED = ("absolute", "hinge", "quantile")  # slow to certify over all patterns: with fewer samples
LOSS_CASES = [
    pytest.param(a, c, loss, marks=[pytest.mark.slow] if (a, c) == ("relu", 3) and loss in KINKED else [])
    for a in SMALL
    for c in (2, 3)
    for loss in sorted(LOSSES)
    if loss not in ("poisson", "quantile")
]


@pytest.mark.parametrize(("activation", "classes", "loss"), LOSS_CASES)
def test_every_loss_classifies(three_classes, activation, classes, loss):
    X, y = (part[: 18 if loss in KINKED else None] for part in three_classes)
    fit = ConvexMLPClassifier(loss=loss, **{**SMALL[activation], "tol": 1e-3}).fit(X, y % classes)
    assert fit.certificate_.relative_gap <= 1e-3
    assert fit.score(X, y % classes) > 0.6
    assert hasattr(fit, "predict_proba") == (loss in ("squared", "huber", "logistic", "softmax"))


def test_one_and_several_targets_keep_their_shape(numbers, small):
    X, y = numbers
    assert ConvexMLPRegressor(**small).fit(X, y).predict(X).shape == y.shape
    assert ConvexMLPRegressor(**small).fit(X, y[:, 0]).predict(X).shape == (len(X),)
    assert r2_score(y, ConvexMLPRegressor(beta=1.0, **small).fit(X, y).predict(X)) > 0.9


def test_a_loss_object_is_taken_as_it_is(numbers, small):
    X, y = numbers
    fit = ConvexMLPRegressor(loss=Huber(delta=0.1), **small).fit(X, y)
    assert fit.certificate_.dual_point.abs().max() <= 0.1 * (1 + 1e-12)


def test_feature_names_are_kept_and_checked(three_classes):
    X, y = three_classes
    table = pd.DataFrame(X, columns=["v", "w"])
    fit = ConvexMLPClassifier(**RELU).fit(table, y)
    assert list(fit.feature_names_in_) == ["v", "w"]
    with pytest.raises(ValueError, match="feature names"):
        fit.predict(table.rename(columns={"v": "other"}))


def test_a_weight_of_two_is_a_repeated_sample(numbers, small):
    X, y = numbers
    weight = np.arange(len(X)) % 3
    settings = {**small, "beta": 5.0, "tol": 1e-9}
    weighted = ConvexMLPRegressor(**settings).fit(X, y, sample_weight=weight)
    repeated = ConvexMLPRegressor(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight, 0))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-8)
    assert weighted.predict(X) == pytest.approx(repeated.predict(X), abs=1e-3)


@pytest.mark.parametrize("loss", ["squared", "log_loss"])
def test_a_weight_of_two_is_a_repeated_sample_for_classifiers(three_classes, loss, small):
    X, y = three_classes
    weight = 1 + np.arange(len(X)) % 2
    settings = {**small, "loss": loss, "beta": 1.0, "tol": 1e-8}
    weighted = ConvexMLPClassifier(**settings).fit(X, y, sample_weight=weight)
    repeated = ConvexMLPClassifier(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight, 0))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-7)
    assert weighted.decision_function(X) == pytest.approx(repeated.decision_function(X), abs=1e-2)


def test_gates_are_in_the_units_of_the_users_x(numbers):
    X, y = numbers
    X = 1000 * X + 5
    gates = np.random.default_rng(0).standard_normal((2, 12))
    fit = ConvexMLPRegressor(gates=gates, hidden_bias=False, **GATED).fit(X, y)
    D = activations(torch.tensor(X), torch.tensor(gates)).double()
    blocks = fit.certificate_.point
    by_hand = torch.einsum("pn,nd,pdc->nc", D, torch.tensor(X), blocks) + fit.module_.output.bias
    assert fit.predict(X) == pytest.approx(by_hand.detach().numpy(), rel=1e-9)


def test_given_gates_have_no_threshold_even_with_a_hidden_bias(numbers):
    X, y = numbers
    gates = np.eye(2)
    fit = ConvexMLPRegressor(gates=gates, **GATED).fit(X, y)
    on = activations(with_constant(torch.tensor(X)), fit.architecture_.gates)
    assert ((X @ gates >= 0) == on.numpy().T).all()


@pytest.mark.parametrize("settings", [RELU, {**GATED, "solver": "kernel_admm"}], ids=SMALL)
def test_warm_start_needs_fewer_steps(three_classes, settings):
    X, y = three_classes
    fit = ConvexMLPClassifier(warm_start=True, **settings).fit(X, y)
    cold = fit.n_iter_
    again = fit.set_params(beta=0.98 * fit.beta_).fit(X, y)
    assert again.n_iter_ < cold


def test_nothing_of_the_callers_or_the_process_is_changed(three_classes, small):
    X, y = three_classes
    before = X.copy(), y.copy(), np.random.get_state()[1].copy(), torch.random.get_rng_state(), torch.get_num_threads()  # noqa: NPY002
    ConvexMLPClassifier(**small).fit(X, y)
    after = X, y, np.random.get_state()[1], torch.random.get_rng_state(), torch.get_num_threads()  # noqa: NPY002
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("settings", [RELU, {**GATED, "solver": "kernel_admm"}], ids=SMALL)
def test_a_missed_tolerance_warns_with_the_gap(three_classes, settings):
    with pytest.warns(ConvergenceWarning, match=r"certified relative gap .* is above tol=1e-09.*raise max_iter"):
        ConvexMLPClassifier(**{**settings, "tol": 1e-9}, max_iter=3).fit(*three_classes)


@pytest.mark.parametrize("settings", [RELU, {**GATED, "solver": "fista"}], ids=SMALL)
def test_max_time_stops_early_with_a_valid_certificate(three_classes, settings):
    with pytest.warns(ConvergenceWarning, match="max_time"):
        fit = ConvexMLPClassifier(**{**settings, "tol": 1e-12}, max_time=1e-3).fit(*three_classes)
    assert 0 <= fit.certificate_.dual <= fit.certificate_.primal


def test_history_shows_the_gap_closing(three_classes, small):
    gaps = [record.relative_gap for record in ConvexMLPClassifier(**small).fit(*three_classes).history_]
    assert gaps[0] > 1e-2
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-5


def test_beta_max_gives_the_zero_network(three_classes, small):
    X, y = three_classes
    fit = ConvexMLPClassifier(**small).fit(X, y)
    assert ConvexMLPClassifier(beta=1.001 * fit.beta_max_, **small).fit(X, y).n_neurons_ == 0
    assert ConvexMLPClassifier(beta=0.9 * fit.beta_max_, **small).fit(X, y).n_neurons_ > 0


def test_cross_validation_chooses_from_its_grid(three_classes, small):
    X, y = three_classes
    fit = ConvexMLPClassifierCV(n_betas=4, cv=2, **small).fit(X, y)
    assert fit.cv_scores_.shape == (4, 2)
    assert fit.beta_ == fit.betas_[fit.best_index_]
    assert fit.cv_scores_[fit.best_index_].mean() == fit.cv_scores_.mean(1).max()
    assert fit.certificate_.relative_gap <= 1e-5


def test_cross_validation_of_a_class_with_fewer_samples_than_folds(small):
    X = np.random.default_rng(0).standard_normal((9, 2))
    fit = ConvexMLPClassifierCV(n_betas=2, **small).fit(X, [0, 1, 0, 1, 0, 1, 0, 0, 0])
    assert fit.cv_scores_.shape == (2, 3)


def test_cross_validation_with_own_betas(numbers, small):
    X, y = numbers
    fit = ConvexMLPRegressorCV(betas=[1e3, 1.0], cv=2, **small).fit(X, y)
    assert fit.beta_ == 1.0


def test_verbose_shows_the_gap_on_standard_error(three_classes, capsys, small):
    with warnings.catch_warnings():
        ConvexMLPClassifier(verbose=1, **small).fit(*three_classes)
    captured = capsys.readouterr()
    assert "gap" in captured.err
    assert captured.out == ""


def test_a_refused_fit_leaves_the_model_as_it_was(three_classes, small):
    X, y = three_classes
    fit = ConvexMLPClassifier(**small).fit(X, y)
    before = fit.predict(X)
    with pytest.raises(ValueError, match="one class only"):
        fit.fit(X, np.zeros(len(X)))
    assert (fit.predict(X) == before).all()


def test_warm_start_follows_changed_gates(three_classes):
    X, y = three_classes
    fit = ConvexMLPClassifier(warm_start=True, **{**GATED, "n_gates": 10}).fit(X, y)
    assert fit.set_params(n_gates=25).fit(X, y).architecture_.gates.shape[1] > 10
    with pytest.raises(ValueError, match="gates must have shape"):
        fit.set_params(gates=np.ones((3, 2))).fit(X, y)


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile"])
def test_large_offsets_of_the_target_do_no_harm(numbers, loss, small):
    X, y = (part[:15] for part in numbers)
    plain, far = (ConvexMLPRegressor(loss=loss, beta=10.0, **small).fit(X, y + offset) for offset in (0, 1e8))
    assert far.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-4)
    assert far.predict(X) - 1e8 == pytest.approx(plain.predict(X), abs=0.2)
