"""A loss, a gauge, a solver and an architecture of a user's own, each in one class outside of the package.

Each is trained with, certified, saved, loaded, exported and reported through the public face.
"""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import bidual
from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.problems.problem import Problem
from bidual.solvers import SOLVERS
from bidual.testing import check_architecture, check_gauge, check_loss
from helpers.report_tools import text_of

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3))
NUMBERS = np.abs(X[:, 0]) - 0.5 * X[:, 1]
NAMES = np.array(["a", "b", "c"])[np.digitize(NUMBERS, [0.2, 0.9])]
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 12, "beta": 0.3, "tol": 1e-3}
EASY = GATED | {"beta": 3.0, "tol": 1e-2}


@pytest.fixture(scope="module")
def own() -> ModuleType:
    from helpers import extensions

    return extensions


CASES = ["loss", "loss of classes", "gauge", "solver", "architecture", "architecture of classes"]


def make(case: str, own: ModuleType) -> tuple[Any, np.ndarray]:
    directions = torch.tensor(np.random.default_rng(1).standard_normal((3, 8)))
    return {
        "loss": lambda: (bidual.ConvexMLPRegressor(loss=own.Pinball(0.3), **GATED), NUMBERS),
        "loss of classes": lambda: (bidual.ConvexMLPClassifier(loss=own.LeastSquaresMargin(), **GATED), NAMES),
        "gauge": lambda: (bidual.ConvexMLPRegressor(penalty=own.Scaled(3.0), **GATED), NUMBERS),
        "solver": lambda: (bidual.ConvexMLPRegressor(solver=own.ProximalGradient(1.2), **EASY), NUMBERS),
        "architecture": lambda: (bidual.ConvexRegressor(architecture=own.Absolute(directions), beta=0.1), NUMBERS),
        "architecture of classes": lambda: (
            bidual.ConvexClassifier(architecture=own.Absolute(directions), loss="log_loss", beta=0.1),
            NAMES,
        ),
    }[case]()


def test_they_keep_their_contracts(own: ModuleType) -> None:
    for loss in (own.Pinball(0.25), own.LeastSquaresMargin()):
        check_loss(loss, torch.Generator().manual_seed(0))
    check_gauge(own.Scaled(3.0), torch.Generator().manual_seed(0))
    check_architecture(own.Absolute, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", CASES)
def test_the_public_face_takes_them(case: str, own: ModuleType, tmp_path: Path) -> None:
    model, y = make(case, own)
    model.fit(X, y)
    assert model.certificate_.relative_gap <= model.tol
    _check_certificate(model, y)
    model.save(tmp_path / "model.safetensors")
    again = bidual.load(tmp_path / "model.safetensors")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for name in ("loss", "penalty", "solver"):
        assert getattr(again, name, None) == getattr(model, name, None)
    assert type(again.architecture_) is type(model.architecture_)
    _check_certificate(again, y)
    _check_onnx(model, tmp_path / "model.onnx")
    text = " ".join(text_of(bidual.report(again, X, y).html).split())
    assert f"fitted with {model.loss_.name} loss" in text
    assert model.module_.words in text


def _check_certificate(model: Any, y: np.ndarray) -> None:
    """The bound is proved again from its witness, without the solver."""
    Y = torch.tensor(model._encode_targets(y))
    problem = Problem(
        model.architecture_.lift(torch.tensor(X), Y.shape[1]),
        model._datafit(Y, None),
        model.architecture_.gauge(),
        model.beta_,
    )
    assert model.certificate_.recheck(problem)
    assert not model.certificate_.recheck(problem.with_beta(2 * model.beta_))


def _check_onnx(model: Any, path: Path) -> None:
    model.to_onnx(path)
    session = onnxruntime.InferenceSession(path)
    outputs = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"X": X}), strict=True))
    if "predictions" in outputs:
        np.testing.assert_allclose(outputs["predictions"], model.predict(X), rtol=0, atol=1e-9)
        return
    np.testing.assert_array_equal(model.classes_[outputs["label"]], model.predict(X))
    np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(X), rtol=0, atol=1e-9)


def test_the_solver_ran(own: ModuleType) -> None:
    model, y = make("solver", own)
    assert model.fit(X, y).solver_ == "proximal_gradient"
    assert {record.solver for record in model.history_} == {"proximal_gradient"}


def test_the_gauge_prices_the_network(own: ModuleType) -> None:
    dear = bidual.ConvexMLPRegressor(penalty=own.Scaled(3.0), **GATED).fit(X, NUMBERS)
    plain = bidual.ConvexMLPRegressor(penalty="frobenius", **GATED | {"beta": 0.9}).fit(X, NUMBERS)
    assert dear.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2e-3)


def test_the_loss_is_what_its_name_says(own: ModuleType) -> None:
    model = bidual.ConvexMLPRegressor(loss=own.Pinball(0.9), **GATED | {"beta": 1e-3}).fit(X, NUMBERS)
    assert np.mean(model.predict(X) + 1e-6 >= NUMBERS) >= 0.85


def test_they_are_known_by_name(own: ModuleType) -> None:
    assert (LOSSES["pinball"], GAUGES["scaled"], SOLVERS["proximal_gradient"]) == (
        own.Pinball,
        own.Scaled,
        own.ProximalGradient,
    )
    settings = EASY | {"penalty": "scaled", "solver": "proximal_gradient", "loss": "least_squares_margin"}
    model = bidual.ConvexMLPClassifier(**settings).fit(X, NAMES == "a")
    assert model.solver_ == "proximal_gradient"
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_networks_from_elsewhere_are_certified_with_an_own_loss(own: ModuleType) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    found = bidual.certify(network, X, NUMBERS, 0.5, loss=own.Pinball(0.3), max_time=1, n_starts=20)
    assert 0 < found.lower_bound < found.objective


LOADS = """
import bidual, sys
for path in sys.argv[1:]:
    try:
        bidual.load(path)
    except ValueError as error:
        print(error)
"""


def test_a_class_that_is_not_imported_is_named(own: ModuleType, tmp_path: Path) -> None:
    paths = [tmp_path / "loss.safetensors", tmp_path / "architecture.safetensors"]
    for path in paths:
        model, y = make(path.stem, own)
        model.fit(X, y).save(path)
    done = subprocess.run([sys.executable, "-c", LOADS, *paths], capture_output=True, text=True, check=True)
    for line, what in zip(done.stdout.splitlines(), ("loss 'pinball'", "architecture 'absolute'"), strict=True):
        assert f"unknown {what}; if it is a class of your own, import the module that defines it first." in line


def test_what_cannot_be_saved_is_said(own: ModuleType, tmp_path: Path) -> None:
    class Nameless(own.Pinball):  # type: ignore[name-defined, misc]
        pass

    class Hidden(own.LeastSquaresMargin):  # type: ignore[name-defined, misc]
        name = "hidden"

        def __init__(self) -> None:
            self.secret = 1

    for loss, words in ((Nameless(0.3), "'pinball' is not its own name as a loss"), (Hidden(), "a frozen dataclass")):
        family = bidual.ConvexMLPClassifier if loss.classification else bidual.ConvexMLPRegressor
        model = family(loss=loss, **GATED).fit(X, NAMES if loss.classification else NUMBERS)
        with pytest.raises(ValueError, match=words):
            model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_objects_that_do_not_fit_are_refused(own: ModuleType) -> None:
    with pytest.raises(ValueError, match="solver must be 'auto' or one of"):
        bidual.ConvexMLPRegressor(solver=own.ProximalGradient()).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="pinball has kinks"):
        bidual.ConvexMLPRegressor(solver=own.ProximalGradient(), loss=own.Pinball(), **GATED).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="least_squares_margin loss is for classifiers"):
        bidual.ConvexMLPRegressor(loss=own.LeastSquaresMargin(), **GATED).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="architecture must be an Architecture"):
        bidual.ConvexRegressor(architecture="mlp").fit(X, NUMBERS)
    with pytest.raises(ValueError, match="rows of numbers"):
        bidual.ConvexRegressor(architecture=own.Absolute(torch.ones(3, 2).double())).fit(X[:, None], NUMBERS)
