"""class_weight against scikit-learn's own weights, and against repeated samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

import bidual
from bidual import certify
from bidual.estimators.class_weights import class_weighted

rng = np.random.default_rng(0)
X = rng.standard_normal((45, 2))
TWO = np.where(X[:, 0] + 0.7 * rng.standard_normal(45) > 0.9, "rare", "often")
THREE = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(45), [-1, 0.8])
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 6, "beta": 0.1, "tol": 1e-6}
SIGNAL = {**GATED, "image_shape": (1, -1), "kernel_size": 2}
MAKERS: dict[str, Any] = {
    "mlp": lambda **more: bidual.ConvexMLPClassifier(**GATED, **more),
    "relu": lambda **more: bidual.ConvexMLPClassifier(beta=0.3, tol=1e-5, **more),
    "cnn": lambda **more: bidual.ConvexCNNClassifier(**SIGNAL, **more),
    "attention": lambda **more: bidual.ConvexAttentionClassifier(**GATED, token_shape=(1, -1), **more),
    "parallel": lambda **more: bidual.ConvexParallelClassifier(
        activation="gated_relu", n_subnetworks=4, widths=2, beta=0.1, tol=1e-6, **more
    ),
    "general": lambda **more: bidual.ConvexClassifier(beta=0.1, tol=1e-6, **more),
}


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("given", ["balanced", {"rare": 4.0}])
def test_it_multiplies_sample_weights(family: str, given: Any) -> None:
    """Gates are sampled by weight, too, so both fits see the same problem."""
    own = rng.uniform(0.5, 2, len(X))
    classes = np.unique(TWO)
    weights = compute_class_weight(given, classes=classes, y=TWO, sample_weight=own)
    once = MAKERS[family](class_weight=given).fit(X, TWO, sample_weight=own)
    twice = MAKERS[family]().fit(X, TWO, sample_weight=own * weights[np.searchsorted(classes, TWO)])
    assert once.certificate_.primal == pytest.approx(twice.certificate_.primal, rel=1e-6)
    np.testing.assert_allclose(once.decision_function(X), twice.decision_function(X), atol=1e-3)
    plain = MAKERS[family]().fit(X, TWO, sample_weight=own)
    assert (once.predict(X) == "rare").sum() > (plain.predict(X) == "rare").sum()


def test_without_sample_weights_they_are_those_of_scikit_learn() -> None:
    for y in (TWO, THREE):
        classes, codes = np.unique(y, return_inverse=True)
        for given in ("balanced", {classes[0]: 3, classes[-1]: 0.25}, {}):
            found = class_weighted(given, classes, codes, None)
            expected = compute_sample_weight(given or None, y) if given != {} else np.ones(len(y))
            np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_balanced_counts_a_weight_of_two_as_two_samples_and_of_zero_as_none() -> None:
    weight = np.ones(len(X))
    weight[:9], weight[THREE == 1] = 2, 0
    weighted = class_weighted("balanced", np.unique(THREE), THREE, weight)
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    repeated = compute_sample_weight("balanced", THREE[rows])
    assert weighted is not None
    np.testing.assert_allclose(np.repeat(weighted / np.maximum(weight, 1), weight.astype(int)), repeated, rtol=1e-14)


def test_an_integer_weight_is_a_repetition() -> None:
    weighted = MAKERS["general"](class_weight={1: 2, 2: 3}).fit(X, THREE)
    rows = np.repeat(np.arange(len(X)), THREE + 1)
    repeated = MAKERS["general"]().fit(X[rows], THREE[rows])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)


def test_a_class_of_weight_zero_is_known_but_not_trained_on() -> None:
    model = MAKERS["general"](class_weight={1: 0}).fit(X, THREE)
    without = MAKERS["general"]().fit(X[THREE != 1], THREE[THREE != 1])
    assert model.classes_.tolist() == [0, 1, 2]
    assert len(model.certificate_.dual_point) == (THREE != 1).sum()
    assert set(model.predict(X)) <= {0, 2}
    np.testing.assert_array_equal(model.predict(X), without.predict(X))
    with pytest.raises(ValueError, match=r"at least two classes, got one class only: \[2\]"):
        MAKERS["general"](class_weight={0: 0, 1: 0}).fit(X, THREE)
    with pytest.raises(ValueError, match="at least two classes, got none that has a weight; add"):
        MAKERS["general"](class_weight={0: 0, 1: 0, 2: 0}).fit(X, THREE)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", r"^class_weight must be None, 'balanced' or a dict with the weights of classes, got 'even'.$"),
        (2.0, "'balanced' or a dict with the weights of classes, got 2.0"),
        ({"rare": -1}, r"^class_weight must be finite and not negative, got -1 for class 'rare'.$"),
        ({"rare": np.inf}, "got inf for class 'rare'"),
        ({"rare": np.nan}, "got nan for class 'rare'"),
        ({"rare": "2"}, "got '2' for class 'rare'"),
        ({"seldom": 2}, r"^class_weight names 'seldom', which is none of the classes \['often', 'rare'\]; drop it.$"),
        ({"rare": 1e200}, "class_weight times sample_weight holds 1e"),
    ],
)
def test_bad_weights_are_refused_before_any_work(family: str, given: Any, message: str, monkeypatch: Any) -> None:
    model = MAKERS[family](class_weight=given)
    monkeypatch.setattr(type(model), "_make_program", lambda *_: pytest.fail("it began to work"))
    with pytest.raises(ValueError, match=message):
        model.fit(X, TWO)
    assert not hasattr(model, "classes_")


def test_cross_validation_weights_fits_and_held_out_losses() -> None:
    settings = {**GATED, "betas": [0.3, 3.0], "cv": 3}
    settings.pop("beta")
    weights = compute_sample_weight("balanced", TWO)
    once = bidual.ConvexMLPClassifierCV(**settings, class_weight="balanced").fit(X, TWO)
    twice = bidual.ConvexMLPClassifierCV(**settings).fit(X, TWO, sample_weight=weights)
    np.testing.assert_allclose(once.cv_scores_, twice.cv_scores_, rtol=1e-3)
    assert not np.allclose(once.cv_scores_, bidual.ConvexMLPClassifierCV(**settings).fit(X, TWO).cv_scores_, rtol=1e-3)


def test_paths_are_weighted() -> None:
    model = MAKERS["general"](class_weight="balanced").fit(X, TWO)
    path = bidual.regularization_path(MAKERS["general"](class_weight="balanced"), X, TWO, betas=[0.1])
    assert path.beta_max == pytest.approx(model.beta_max_)
    assert path.solutions[0].certificate.primal == pytest.approx(model.certificate_.primal, rel=1e-5)


@pytest.mark.parametrize("given", ["balanced", {0: 2.5, np.int64(2): 1}])
def test_it_is_saved(given: Any, tmp_path: Path) -> None:
    model = MAKERS["general"](class_weight=given).fit(X, THREE)
    model.save(tmp_path / "m")
    again = bidual.load(tmp_path / "m")
    assert again.class_weight == given
    np.testing.assert_array_equal(again.fit(X, THREE).decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("given", ["balanced", {"rare": 3}])
def test_certify_takes_the_same_weights(given: Any) -> None:
    model = bidual.ConvexMLPClassifier(beta=1.0, class_weight=given, tol=1e-4).fit(X, TWO)
    found = certify(model, X, TWO, 1.0, class_weight=given)
    assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
    assert found.relative_gap <= 2e-4
    by_sample = certify(model, X, TWO, 1.0, sample_weight=compute_sample_weight(given, TWO))
    assert by_sample.objective == pytest.approx(found.objective, rel=1e-9)
    assert certify(model, X, TWO, 1.0).objective != pytest.approx(found.objective, rel=1e-2)


def test_certify_takes_weights_of_any_kind() -> None:
    model, weight = bidual.ConvexMLPRegressor(max_time=1.0).fit(X[:12], X[:12, 0]), np.linspace(0.5, 2.0, 12)
    one, other = (
        certify(model, X[:12], X[:12, 0], 0.5, sample_weight=each, max_time=1.0)
        for each in (weight, torch.tensor(weight, requires_grad=True))
    )
    assert one.objective == other.objective


def test_certify_leaves_out_samples_without_weight() -> None:
    model = bidual.ConvexMLPClassifier(beta=1.0, tol=1e-4).fit(X[:30], TWO[:30])
    found = certify(model, X, TWO, 1.0, sample_weight=np.arange(45) < 30)
    assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
    assert found.relative_gap <= 2e-4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"class_weight": {"seldom": 2}}, "names 'seldom', which is none of the classes"),
        ({"class_weight": "even"}, "'balanced' or a dict"),
        ({"sample_weight": np.zeros(45)}, "zero"),
        ({"class_weight": {"often": 0, "rare": 0}}, "all samples have weight zero; give some a positive weight"),
        ({"sample_weight": -np.ones(45)}, "[Nn]egative"),
        ({"sample_weight": np.ones(3)}, r"sample_weight.shape"),
    ],
)
def test_certify_refuses_bad_weights(more: dict[str, Any], message: str) -> None:
    model = bidual.ConvexMLPClassifier(beta=1.0, tol=1e-2).fit(X, TWO)
    with pytest.raises(ValueError, match=message):
        certify(model, X, TWO, 1.0, **more)


def test_certify_of_numbers_has_no_classes() -> None:
    model = bidual.ConvexMLPRegressor(beta=1.0, tol=1e-2).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="class_weight is for labels"):
        certify(model, X, X[:, 0], 1.0, class_weight="balanced")


def test_regressors_have_none() -> None:
    assert "class_weight" not in bidual.ConvexMLPRegressor().get_params()
