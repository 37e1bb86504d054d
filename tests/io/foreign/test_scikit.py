import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual.io.foreign import from_sklearn, sklearn_beta

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3))
Y = np.stack([X[:, 0] ** 2, X[:, 1]], axis=1)
THREE = np.array(["a", "b", "c"])[np.arange(60) % 3]
SMALL: dict[str, Any] = {"hidden_layer_sizes": (5,), "random_state": 0, "max_iter": 30}


def fitted(estimator: Any, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, y)


def outputs(estimator: Any) -> np.ndarray:
    return from_sklearn(estimator).forward(torch.tensor(X)).numpy()


@pytest.mark.parametrize("y", [Y[:, 0], Y], ids=["one", "two"])
def test_regressors_agree(y: np.ndarray) -> None:
    mlp = fitted(MLPRegressor(**SMALL), y)
    np.testing.assert_allclose(outputs(mlp).reshape(y.shape), mlp.predict(X), rtol=1e-12)


def test_classifiers_give_raw_scores() -> None:
    mlp = fitted(MLPClassifier(**SMALL), THREE)
    scores = outputs(mlp)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(shares, mlp.predict_proba(X), rtol=1e-10)
    two = fitted(MLPClassifier(**SMALL), X[:, 0] > 0)
    np.testing.assert_allclose(1 / (1 + np.exp(-outputs(two)[:, 0])), two.predict_proba(X)[:, 1], rtol=1e-10)


REFUSED: dict[str, tuple[Any, str]] = {
    "not fitted": (MLPRegressor(), "this MLPRegressor is not fitted; call fit first"),
    "tanh": (fitted(MLPRegressor(activation="tanh", **SMALL), Y), "activation='tanh'"),
    "deep": (fitted(MLPClassifier(**SMALL | {"hidden_layer_sizes": (4, 4)}), THREE), "2 hidden layers"),
    "shallow": (fitted(MLPClassifier(**SMALL | {"hidden_layer_sizes": ()}), THREE), "0 hidden layers"),
    "pipeline": (fitted(make_pipeline(StandardScaler(), MLPRegressor(**SMALL)), Y), "give its last step"),
    "ridge": (fitted(Ridge(), Y), "a Ridge cannot be read; give an MLPRegressor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    estimator, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        from_sklearn(estimator)


def test_a_link_function_is_refused() -> None:
    mlp = fitted(MLPRegressor(**SMALL), Y)
    mlp.out_activation_ = "exp"  # loss="poisson", in newer versions
    with pytest.raises(ValueError, match="ends with 'exp'; use loss='squared_error'"):
        from_sklearn(mlp)


def gradient(mlp: Any, beta: float) -> torch.Tensor:
    """The gradient of 1/2 |outputs - y|^2 + beta/2 |weights|^2 in all weights."""
    weights = from_sklearn(mlp)
    parts = [weights.hidden.requires_grad_(), weights.output.requires_grad_()]
    loss = 0.5 * (weights.forward(torch.tensor(X)) - torch.tensor(Y[:, :1])).square().sum()
    squares = torch.stack([part.square().sum() for part in parts]).sum()
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss + beta / 2 * squares, parts)])


def test_beta_makes_a_trained_network_stationary() -> None:
    exact: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-12, "max_iter": 20000, "max_fun": 10**6}
    mlp = fitted(MLPRegressor(**SMALL | exact, alpha=0.7), Y[:, 0])
    beta = sklearn_beta(mlp, 60)
    assert beta == 0.7
    assert gradient(mlp, beta).norm() < 0.1 * gradient(mlp, 1.1 * beta).norm()


def test_beta_grows_with_the_number_of_batches() -> None:
    assert sklearn_beta(MLPRegressor(alpha=0.1), 100) == 0.1
    assert sklearn_beta(MLPRegressor(alpha=0.1), 1000) == pytest.approx(0.5)
    assert sklearn_beta(MLPClassifier(alpha=0.1, solver="sgd", batch_size=10), 1000) == pytest.approx(10)
    assert sklearn_beta(MLPRegressor(alpha=0.1, batch_size=500), 100) == 0.1


def test_an_epoch_of_small_batches_follows_the_gradient_at_beta() -> None:
    steps: dict[str, Any] = {"solver": "sgd", "batch_size": 10, "momentum": 0, "learning_rate_init": 1e-9}
    mlp = MLPRegressor(**SMALL | steps, alpha=1.0).partial_fit(X, Y[:, 0])
    before, expected = from_sklearn(mlp), gradient(mlp, sklearn_beta(mlp, 60))
    after = from_sklearn(mlp.partial_fit(X, Y[:, 0]))
    moved = torch.cat([(before.hidden - after.hidden).flatten(), (before.output - after.output).flatten()])
    torch.testing.assert_close(moved * 10 / 1e-9, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_samples", [0, -3, 2.5, "all"])
def test_beta_needs_a_number_of_samples(n_samples: Any) -> None:
    with pytest.raises(ValueError, match="n_samples must be a positive whole number"):
        sklearn_beta(MLPRegressor(), n_samples)
