"""Which gates a gated network gets: from a quick ReLU training by default, random ones elsewhere."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from bidual import ConvexCNNClassifier, ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, load
from bidual.estimators import mlp
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.patterns import sample_gates
from bidual.problems.certificate import Scope
from bidual.problems.problem import ReluProblem
from bidual.training.relu.quick_gates import gates_of_quick_training

GATED: dict[str, Any] = {"activation": "gated_relu", "tol": 1e-3}
Array = NDArray[np.float64]


@pytest.fixture
def planted() -> tuple[Array, Array]:
    """The outputs of a ReLU network with three neurons, and some noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    teacher = np.maximum(X @ rng.standard_normal((6, 3)), 0) @ np.array([[1.0], [-1.0], [1.5]])
    return X, teacher[:, 0] + 0.05 * rng.standard_normal(80)


def gates_of(model: Any) -> Array:
    found: Array = model.architecture_.gates.numpy()
    return found


def random_gates(model: Any, X: Array, count: int = 200) -> Array:
    generator = torch.Generator().manual_seed(model._seed())
    return sample_gates(torch.tensor(X), count, generator, bias=model.hidden_bias).numpy()


@pytest.mark.parametrize("hidden_bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
def test_gates_of_a_quick_training_on_the_samples_of_the_fit_come_first_and_random_ones_last(
    planted: tuple[Array, Array], hidden_bias: bool, outputs: int
) -> None:
    X, y = planted
    Y = np.stack([y, X[:, 0] ** 2], 1)[:, :outputs]
    weight = 0.5 + np.arange(80.0) % 3
    weight[:4] = 0
    fit = ConvexMLPRegressor(hidden_bias=hidden_bias, **GATED).fit(X, Y, weight)
    inner = fit._datafit(torch.tensor(Y[4:]), torch.tensor(weight[4:]))
    expected = gates_of_quick_training(fit._relu_problem(torch.tensor(X[4:]), inner), fit._seed())
    trained, total = expected.shape[1], gates_of(fit).shape[1]
    assert 3 < trained < total <= 200
    assert gates_of(fit)[:, :trained] == pytest.approx(expected.numpy(), rel=1e-12)
    inner_rows, drawn_weight = torch.tensor(X[4:]), torch.tensor(weight[4:])
    generator = torch.Generator().manual_seed(fit._seed())
    drawn = sample_gates(inner_rows, 200, generator, bias=hidden_bias, weight=drawn_weight).numpy()
    last = gates_of(fit)[:, trained:]
    assert all((gate[:, None] == drawn).all(0).any() for gate in last.T)
    assert fit.certificate_.scope is Scope.BLOCKS
    assert fit.certificate_.within(1e-3)


def test_class_weights_choose_gates_too(planted: tuple[Array, Array]) -> None:
    X, y = planted
    labels, each = y > 1, {False: 1.0, True: 4.0}
    fit = ConvexMLPClassifier(class_weight=each, **GATED).fit(X, labels)
    same = ConvexMLPClassifier(**GATED).fit(X, labels, np.where(labels, 4.0, 1.0))
    assert (gates_of(fit) == gates_of(same)).all()
    plain = gates_of(ConvexMLPClassifier(**GATED).fit(X, labels))
    assert plain.shape != gates_of(fit).shape or (plain != gates_of(fit)).any()


def test_optima_over_trained_gates_alone_depend_less_on_the_seed_than_over_random_ones(
    planted: tuple[Array, Array],
) -> None:
    X, y = planted
    plain: dict[str, Any] = {**GATED, "hidden_bias": False, "beta": 2.0}

    def spread(settings: list[dict[str, Any]]) -> float:
        optima = [ConvexMLPRegressor(**plain, **each).fit(X, y).certificate_.primal for each in settings]
        return float((max(optima) - min(optima)) / np.mean(optima))

    some = ConvexMLPRegressor(**plain)
    problem = some._relu_problem(torch.tensor(X), Datafit(Squared(), torch.tensor(y)[:, None], None, True))
    trained: list[dict[str, Any]] = [{"gates": gates_of_quick_training(problem, seed)} for seed in range(5)]
    assert spread(trained) < 0.5 * spread([{"n_gates": 200, "random_state": seed} for seed in range(5)])


def test_random_state_decides(planted: tuple[Array, Array]) -> None:
    first, again, other = (ConvexMLPRegressor(random_state=k, **GATED).fit(*planted) for k in (0, 0, 1))
    assert (gates_of(first) == gates_of(again)).all()
    assert first.certificate_.primal == again.certificate_.primal
    assert gates_of(first).shape != gates_of(other).shape or (gates_of(first) != gates_of(other)).any()
    drawn = (ConvexMLPRegressor(random_state=np.random.RandomState(3), **GATED).fit(*planted) for _ in range(2))
    assert len({fit.certificate_.primal for fit in drawn}) == 1


@pytest.mark.parametrize("settings", [{"n_gates": 200}, {"loss": "absolute"}, {"loss": "quantile"}], ids=str)
def test_gates_are_random_where_they_are_counted_or_the_loss_has_kinks(
    planted: tuple[Array, Array], settings: dict[str, Any]
) -> None:
    fit = ConvexMLPRegressor(**GATED | {"tol": 0.1} | settings).fit(*planted)
    assert (gates_of(fit) == random_gates(fit, planted[0])).all()


def test_gates_are_random_for_sparse_samples_which_are_not_written_out(
    planted: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = planted
    X = np.where(X > 0.5, X, 0.0)
    monkeypatch.setattr(mlp, "gates_of_quick_training", None)
    fit = ConvexMLPRegressor(**GATED).fit(sparse.csr_array(X), y)
    assert gates_of(fit) == pytest.approx(random_gates(fit, X))


def test_gates_are_random_where_every_network_is_zero(planted: tuple[Array, Array]) -> None:
    X, _ = planted
    fit = ConvexMLPRegressor(**GATED).fit(X, np.full(len(X), 2.0))
    assert (gates_of(fit) == random_gates(fit, X)).all()
    assert fit.predict(X) == pytest.approx(2.0)


def test_filters_have_random_gates() -> None:
    X = np.random.default_rng(0).standard_normal((12, 1, 3, 3))
    fit = ConvexCNNClassifier(kernel_size=2, **GATED).fit(X, np.arange(12) % 2)
    rows, _ = fit._seen(torch.tensor(X), None)
    assert (gates_of(fit) == random_gates(fit, rows.numpy(), 100)).all()


def test_warm_starts_keep_gates_while_they_are_chosen_alike(planted: tuple[Array, Array]) -> None:
    X, y = planted
    fit = ConvexMLPRegressor(warm_start=True, **GATED).fit(X, y)
    gates = gates_of(fit)
    assert (gates_of(fit.fit(X, y + X[:, 0])) == gates).all()
    kinked = gates_of(fit.set_params(loss="absolute", tol=0.1).fit(X, y))
    assert (kinked == random_gates(fit, X)).all()


def test_folds_choose_gates_by_their_own_targets_alone(
    planted: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = planted
    seen: list[ReluProblem] = []

    def watched(problem: ReluProblem, *rest: Any) -> torch.Tensor:
        seen.append(problem)
        return gates_of_quick_training(problem, *rest)

    monkeypatch.setattr(mlp, "gates_of_quick_training", watched)
    labels, splits = y > 1, [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    fit = ConvexMLPClassifierCV(n_betas=2, cv=splits, **GATED).fit(X, labels)
    whole, *folds = seen
    assert len(whole.X) == 80
    assert len(folds) == 2
    for (train, _), fold in zip(splits, folds, strict=True):
        assert (fold.X[:, :6].numpy() == X[train]).all()
        assert ((fold.datafit.targets[:, 0].numpy() > 0) == labels[train]).all()
    flipped = labels.copy()
    flipped[40:] = ~flipped[40:]
    other = ConvexMLPClassifierCV(n_betas=2, cv=splits[:1], betas=fit.betas_, **GATED).fit(X, flipped)
    assert other.n_splits_ == 1
    assert (seen[-1].datafit.targets == folds[0].datafit.targets).all()


def test_saved_models_keep_their_gates(planted: tuple[Array, Array], tmp_path: Any) -> None:
    fit = ConvexMLPRegressor(**GATED).fit(*planted)
    fit.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (gates_of(again) == gates_of(fit)).all()
    assert (again.predict(planted[0]) == fit.predict(planted[0])).all()


@pytest.mark.parametrize(("max_time", "share"), [(None, None), (8, 2.0)])
def test_finding_gates_has_a_share_of_the_time(
    planted: tuple[Array, Array], max_time: int | None, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []

    def watched(problem: ReluProblem, seed: int, seconds: float | None) -> torch.Tensor:
        seen.append(seconds)
        return gates_of_quick_training(problem, seed, seconds)

    monkeypatch.setattr(mlp, "gates_of_quick_training", watched)
    ConvexMLPRegressor(max_time=max_time, **GATED).fit(*planted)
    assert seen == [share]
