"""Regressors with losses whose outputs are not means: quantiles, and logarithms of the means of counts."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.linear_model import PoissonRegressor, QuantileRegressor
from sklearn.metrics import d2_pinball_score, r2_score

import bidual
from bidual import (
    ConvexAttentionRegressor,
    ConvexMLPClassifier,
    ConvexMLPRegressor,
    ConvexMLPRegressorCV,
    ConvexParallelRegressor,
)
from bidual.losses import Poisson, Quantile
from bidual.problems.certificate import Scope

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 2))
COUNTS = rng.poisson(np.exp(0.5 + np.maximum(X[:, 0], 0))).astype(float)
NUMBERS = X[:, 0] + (1 + np.abs(X[:, 1])) * rng.standard_normal(40)
FAMILIES: dict[str, dict[str, Any]] = {
    "relu": {"tol": 1e-3},
    "gated_relu": {"activation": "gated_relu", "n_gates": 8, "tol": 1e-6},
    "linear": {"activation": "linear", "tol": 1e-6},
}
every_family = pytest.mark.parametrize("settings", FAMILIES.values(), ids=FAMILIES)


@every_family
def test_counts_are_certified_and_predicted_by_their_means(settings: dict[str, Any]) -> None:
    model = ConvexMLPRegressor(loss="poisson", **settings).fit(X, COUNTS)
    assert model.certificate_.relative_gap <= model.tol
    assert model.certificate_.scope is (Scope.ALL_PATTERNS if model.activation == "relu" else Scope.BLOCKS)
    assert model.predict(X).min() > 0
    assert model.predict(X).mean() == pytest.approx(COUNTS.mean(), rel=1e-6)  # an intercept makes them add up
    outputs = model.module_(torch.from_numpy(X)).detach().numpy()[:, 0]
    np.testing.assert_allclose(np.log(model.predict(X)), outputs, rtol=1e-12, atol=1e-12)
    assert model.score(X, COUNTS) == pytest.approx(r2_score(COUNTS, model.predict(X)))


@every_family
def test_quantiles_are_certified_and_have_their_share_below(settings: dict[str, Any]) -> None:
    model = ConvexMLPRegressor(loss=Quantile(0.9), **settings).fit(X, NUMBERS)
    assert model.certificate_.relative_gap <= model.tol
    off = np.abs(NUMBERS - model.predict(X)) > 0.02  # up to the samples that the optimum goes through
    assert (off & (model.predict(X) < NUMBERS)).sum() <= 0.1 * len(X)
    assert (off & (model.predict(X) > NUMBERS)).sum() <= 0.9 * len(X)
    assert d2_pinball_score(NUMBERS, model.predict(X), alpha=0.9) > 0


@every_family
@pytest.mark.parametrize(("loss", "y"), [(Poisson(), COUNTS), (Quantile(0.3), NUMBERS)], ids=["poisson", "quantile"])
def test_beyond_beta_max_the_best_constant_is_left(settings: dict[str, Any], loss: Any, y: np.ndarray) -> None:
    y = y[:39]  # 0.3 of them is no whole number, so that the quantile is one sample
    beta = 1.01 * ConvexMLPRegressor(loss=loss, beta=1e6, **settings).fit(X[:39], y).beta_max_
    model = ConvexMLPRegressor(loss=loss, beta=beta, **settings).fit(X[:39], y)
    best = y.mean() if loss.counts else np.quantile(y, 0.3, method="inverted_cdf")
    assert model.n_neurons_ == 0
    np.testing.assert_allclose(model.predict(X), best, rtol=1e-7)


def test_linear_networks_agree_with_scikit_learn() -> None:
    """As beta falls the penalty does not matter, and what is left is a generalised linear model."""
    counts = ConvexMLPRegressor(loss="poisson", beta=1e-7, activation="linear", tol=1e-9, hidden_bias=False)
    theirs = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(X, COUNTS)
    np.testing.assert_allclose(counts.fit(X, COUNTS).predict(X), theirs.predict(X), rtol=1e-4)
    numbers = ConvexMLPRegressor(loss=Quantile(0.8), beta=1e-7, activation="linear", tol=1e-7, hidden_bias=False)
    line = QuantileRegressor(quantile=0.8, alpha=0).fit(X, NUMBERS)
    np.testing.assert_allclose(numbers.fit(X, NUMBERS).predict(X), line.predict(X), atol=1e-3)


@pytest.mark.parametrize(("loss", "y"), [(Poisson(), COUNTS), (Quantile(0.9), NUMBERS)], ids=["poisson", "quantile"])
@pytest.mark.parametrize("name", ["relu", "gated_relu"])
def test_weights_are_repetitions(name: str, loss: Any, y: np.ndarray) -> None:
    weight = np.arange(20) % 3
    gates = {"gates": rng.standard_normal((2, 6))} if name == "gated_relu" else {}
    settings = {"loss": loss, "beta": 0.8, "hidden_bias": False, "activation": name, "tol": 1e-5, **gates}
    weighted = ConvexMLPRegressor(**settings).fit(X[:20], y[:20], sample_weight=weight)
    repeated = ConvexMLPRegressor(**settings).fit(X[:20].repeat(weight, 0), y[:20].repeat(weight))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=2e-5)


def test_folds_are_scored_by_the_loss_of_the_outputs() -> None:
    model = ConvexMLPRegressorCV(loss="poisson", activation="gated_relu", n_gates=8, n_betas=3, cv=3, tol=1e-3)
    model.fit(X, COUNTS)
    assert np.isfinite(model.cv_scores_).all()
    assert model.cv_scores_.max() < 0
    constant = Poisson().value(torch.full((40, 1), np.log(COUNTS.mean())).double(), torch.tensor(COUNTS)[:, None])
    assert model.cv_scores_.mean(1).max() > -float(constant.mean())
    assert model.predict(X).mean() == pytest.approx(COUNTS.mean(), rel=1e-6)


@pytest.mark.parametrize("loss", [Poisson(), Quantile(0.9)], ids=lambda loss: loss.name)
def test_models_are_saved_and_exported_as_they_predict(loss: Any, tmp_path: Path) -> None:
    model = ConvexMLPRegressor(loss=loss, **FAMILIES["gated_relu"]).fit(X, COUNTS)
    model.save(tmp_path / "model.safetensors")
    again = bidual.load(tmp_path / "model.safetensors")
    assert type(again.loss) is type(loss)
    assert vars(again.loss) == vars(loss)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    model.to_onnx(str(tmp_path / "model.onnx"))
    predictions = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": X})[0]
    np.testing.assert_allclose(predictions, model.predict(X), rtol=1e-9)


def test_a_network_of_outputs_is_certified_with_its_loss() -> None:
    model = ConvexMLPRegressor(loss="poisson", beta=1.0, tol=1e-3).fit(X, COUNTS)
    found = bidual.certify(model.module_, X, COUNTS, 1.0, loss="poisson", max_time=5)
    assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
    assert found.lower_bound <= model.certificate_.primal


def test_other_families_predict_means_too() -> None:
    sequences = rng.standard_normal((8, 3, 2))
    tokens = rng.poisson(2, (8, 3, 1)).astype(float)
    attention = ConvexAttentionRegressor(loss="poisson", n_gates=4, tol=1e-2).fit(sequences, tokens)
    assert attention.predict(sequences).shape == tokens.shape
    assert attention.predict(sequences).mean() == pytest.approx(tokens.mean(), rel=1e-6)
    parallel = ConvexParallelRegressor(loss="poisson", activation="gated_relu", n_subnetworks=4, tol=1e-2)
    assert parallel.fit(X, COUNTS).predict(X).mean() == pytest.approx(COUNTS.mean(), rel=1e-6)


def test_large_counts_and_small_rates_are_the_same_but_for_their_unit() -> None:
    """l(p + log t, t y) = t l(p, y): the network moves by its intercept, and beta by t."""
    plain = ConvexMLPRegressor(loss="poisson", **FAMILIES["gated_relu"]).fit(X, COUNTS)
    for unit in (1e-6, 1e6):
        model = ConvexMLPRegressor(loss="poisson", **FAMILIES["gated_relu"]).fit(X, unit * COUNTS)
        assert model.certificate_.relative_gap <= model.tol
        assert model.certificate_.primal == pytest.approx(unit * plain.certificate_.primal, rel=3e-6)


def test_bad_targets_and_losses_are_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="poisson loss needs targets of at least zero, got -1; use"):
        ConvexMLPRegressor(loss="poisson").fit(X, np.where(COUNTS > 2, -1.0, COUNTS))
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.2; 0\.5 is the median"):
        ConvexMLPRegressor(loss=Quantile(1.2))
    with pytest.raises(ValueError, match="poisson loss is for counts, not for classes"):
        ConvexMLPClassifier(loss="poisson").fit(X, COUNTS > 1)
    with pytest.raises(ValueError, match="frank_wolfe needs a loss whose slope has a Lipschitz constant"):
        ConvexMLPRegressor(loss="poisson", solver="frank_wolfe").fit(X, COUNTS)
    with pytest.raises(ValueError, match="fista needs a smooth loss; quantile has kinks"):
        ConvexMLPRegressor(loss="quantile", solver="fista", activation="linear").fit(X, NUMBERS)


def test_scikit_learn_is_told_that_counts_are_not_negative() -> None:
    assert ConvexMLPRegressor(loss="poisson").__sklearn_tags__().target_tags.positive_only
    assert not ConvexMLPRegressor(loss="quantile").__sklearn_tags__().target_tags.positive_only
    assert not ConvexMLPRegressor(loss="no loss").__sklearn_tags__().target_tags.positive_only


@pytest.mark.parametrize("settings", [{}, {"activation": "linear"}], ids=["relu", "linear"])
def test_counts_that_are_all_zero_are_refused(settings: dict[str, Any]) -> None:
    model = ConvexMLPRegressor(loss="poisson", **settings)
    with pytest.raises(ValueError, match="poisson loss needs a count above zero, got zeros only"):
        model.fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="got zeros only"):
        model.fit(X, np.where(X[:, 0] > 0, 0, COUNTS), sample_weight=X[:, 0] > 0)
    bounded = model.set_params(fit_intercept=False, tol=1e-2).fit(X, np.zeros(40))  # by the weight decay
    assert 0 < bounded.certificate_.dual <= bounded.certificate_.primal


def test_labels_are_not_for_regressors() -> None:
    with pytest.raises(ValueError, match=r"targets of a regressor must be numbers \(.*'a'.*\); use a classifier"):
        ConvexMLPRegressor().fit(X, np.repeat("a", 40))


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
@pytest.mark.parametrize("scale", [1e-90, 1e60])
def test_weights_beyond_float32_scale_the_problem(loss: str, scale: float) -> None:
    model = ConvexMLPRegressor(loss=loss, activation="linear", tol=1e-3)
    plain = model.fit(X, COUNTS).certificate_
    scaled = model.fit(X, COUNTS, sample_weight=np.full(40, scale)).certificate_
    assert scaled.relative_gap <= 1e-3
    assert max(plain.dual, scaled.dual / scale) <= min(plain.primal, scaled.primal / scale) * (1 + 1e-9)


def test_targets_beyond_float32_are_trained_on() -> None:
    model = ConvexMLPRegressor(activation="linear", tol=1e-3).fit(X, 1e60 * NUMBERS)
    assert model.certificate_.relative_gap <= 1e-3
