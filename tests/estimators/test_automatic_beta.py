"""beta="auto" of ReLU networks."""

import numpy as np
import pytest

from bidual import ConvexMLPClassifier, ConvexMLPRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
TARGET = X[:, 0] + 2 * RNG.standard_normal(60)
SETTINGS = {"hidden_bias": False, "tol": 1e-2, "max_time": 1}


def beta(X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    model = ConvexMLPRegressor(**SETTINGS).fit(X, y, weight)
    return model.beta_, model.beta_max_


def test_it_is_the_formula_of_the_docs() -> None:
    found, largest = beta(X, TARGET)
    slopes = TARGET - TARGET.mean()
    expected = 0.03 * (slopes @ slopes) * np.square(X).sum() / 4 / largest
    assert 0.03 * largest < expected < 0.6 * largest  # neither limit
    assert found == pytest.approx(expected)


def test_units_do_not_matter() -> None:
    found, largest = beta(X, TARGET)
    for other in (beta(1e3 * X, TARGET), beta(X, 1e-2 * TARGET), beta(X, TARGET, np.full(60, 7.0))):
        assert other[0] / other[1] == pytest.approx(found / largest, rel=1e-6)


def test_a_weight_is_a_repeated_sample() -> None:
    weight = np.arange(60) % 3
    repeated = beta(np.repeat(X, weight, axis=0), np.repeat(TARGET, weight))
    assert beta(X, TARGET, weight.astype(float)) == pytest.approx(repeated, rel=1e-6)


def test_targets_that_a_neuron_tells_get_a_smaller_share_than_noise() -> None:
    signal, largest = beta(X, np.maximum(X[:, 0], 0))
    assert 0.03 * largest <= signal < 0.15 * largest
    copies = np.tile(X[:, :1], 4)  # one neuron sees as much as four
    same, most = beta(copies, np.maximum(X[:, 0], 0))
    assert same == pytest.approx(0.03 * most)
    noise, most = beta(RNG.standard_normal((400, 4)), RNG.standard_normal(400))
    assert 0.3 * most < noise <= (0.6 + 1e-9) * most


def test_constant_targets_have_some_beta() -> None:
    assert beta(X, np.ones(60)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("activation", "loss"), [("relu", "log_loss"), ("gated_relu", "squared"), ("linear", "squared")]
)
def test_the_loss_of_a_classifier_by_default(activation: str, loss: str) -> None:
    settings = {"activation": activation, "beta": 2.0, "tol": 1e-3}
    auto, named = (ConvexMLPClassifier(loss=each, **settings).fit(X, TARGET > 0) for each in ("auto", loss))
    np.testing.assert_array_equal(auto.predict_proba(X), named.predict_proba(X))
