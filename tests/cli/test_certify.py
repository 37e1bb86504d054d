"""The command with a stand-in for the mathematics."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from bidual.cli.certify import certify
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.saving import save
from bidual.io.foreign import from_file
from bidual.io.tables import TableEncoder
from helpers.foreign_tools import network, own

rng = np.random.default_rng(0)


@dataclass(frozen=True)
class FakeCertificate:
    objective: float = 2.0
    lower_bound: float = 1.5
    relative_gap: float = 0.25
    certificate: object = None
    better: nn.Module | None = None
    better_objective: float | None = None
    status: str = "stand-in"
    beta: float = 0.7
    unit: float = 1.0
    constant_objective: float = 3.0
    kind: str = "two-layer ReLU network of any width"
    how: str = ""
    verdict: str = "Your network can be improved."


UNSAID = {"weight_decay": None, "reduction": None, "optimizer": "sgd", "decayed_bias": None}


class Bench:
    """The command, and what it handed to the stand-in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.calls, self.answer = folder, [], FakeCertificate()
        monkeypatch.setattr("bidual.estimators.certifying.certify", self._certify)
        self.app = typer.Typer(pretty_exceptions_enable=False)
        self.app.command()(certify)
        self.model = folder / "m.safetensors"
        save_file(network(outputs=2).state_dict(), self.model)
        save_file(network(outputs=1).state_dict(), folder / "one.safetensors")
        self.table(label=np.arange(20) % 2)

    def _certify(self, weights: Any, X: Any, Y: Any, beta: float | None, loss: Any, **settings: Any) -> FakeCertificate:
        self.calls.append((weights, X, Y, beta, loss, settings))
        return self.answer

    def table(self, name: str = "t.csv", **columns: Any) -> Path:
        frame = pd.DataFrame(np.random.default_rng(0).standard_normal((20, 3)) * 5 + 1, columns=["c", "b", "a"])
        for column, values in columns.items():
            frame[column] = values
        frame.to_csv(self.folder / name, index=False)
        return self.folder / name

    def run(self, *arguments: object, model: str = "m.safetensors", target: str = "label", data: str = "t.csv") -> Any:
        words = (self.folder / model, self.folder / data, "--target", target, *arguments)
        return CliRunner().invoke(self.app, [str(word) for word in words])

    def refused(self, message: str, *arguments: object, **where: str) -> bool:
        result = self.run(*arguments, **where)
        assert isinstance(result.exception, ValueError)
        assert message in str(result.exception)
        assert not self.calls
        return True


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_columns_are_used_as_they_are(bench: Bench) -> None:
    result = bench.run("--beta", 0.3, "--max-time", 9)
    assert result.exit_code == 0
    ((weights, X, Y, beta, loss, settings),) = bench.calls
    np.testing.assert_allclose(X, pd.read_csv(bench.folder / "t.csv")[["c", "b", "a"]])
    np.testing.assert_array_equal(Y, np.eye(2)[np.arange(20) % 2])
    assert (weights.n_outputs, beta, loss.name, settings) == (
        2,
        0.3,
        "squared",
        {"sample_weight": None, "max_time": 9, "tol": 1e-4, "proof": None} | UNSAID,
    )
    assert "25 % at most (stand-in)" in result.output
    assert result.output.startswith("verdict      Your network can be improved.")
    assert "classification (guessed from 2 different values" in result.output


def test_json_and_quiet(bench: Bench) -> None:
    payload = json.loads(bench.run("--beta", 1, "--json", "--loss", "log_loss").output)
    assert payload["loss"] == "softmax"
    assert (payload["objective"], payload["relative_gap"], payload["better_objective"]) == (2.0, 0.25, None)
    assert bench.run("--beta", 1, "--quiet").output == ""


def test_the_words_of_a_training_loop(bench: Bench) -> None:
    words = ("--weight-decay", 1e-3, "--reduction", "sum", "--optimizer", "adam", "--decayed-bias")
    for given, passed in (("all", True), ("none", False), ("output", "output")):
        bench.calls.clear()
        bench.answer = FakeCertificate(unit=0.5)
        assert (
            "objective    2, as a sum over samples; 0.5 times that in the training loop"
            in bench.run(*words, given).output
        )
        bench.calls.clear()
        payload = json.loads(bench.run(*words, given, "--json").output)
        assert (payload["weight_decay"], payload["beta"], payload["unit"]) == (1e-3, 0.7, 0.5)
        assert bench.calls[0][3] is None
        said = {name: bench.calls[0][5][name] for name in UNSAID}
        assert said == {"weight_decay": 1e-3, "reduction": "sum", "optimizer": "adam", "decayed_bias": passed}


def test_a_head_among_other_layers(bench: Bench) -> None:
    """Its features are the columns of the table."""
    head, body = network(outputs=2).state_dict(), nn.Linear(9, 3).double().state_dict()
    named = {f"fc{1 + int(name[0]) // 2}.{name[2:]}": value for name, value in head.items()}
    save_file(named | {f"body.{name}": value for name, value in body.items()}, bench.folder / "large.safetensors")
    assert bench.refused("nothing else", "--beta", 1, model="large.safetensors")
    assert bench.refused("no layer 'fc3'; did you mean", "--beta", 1, "--head", "fc1,fc3", model="large.safetensors")
    assert bench.refused("--head must name two layers", "--beta", 1, "--head", "fc1", model="large.safetensors")
    assert bench.refused("both must be the same number", "--beta", 1, "--head", "fc2,fc1", model="large.safetensors")
    assert bench.run("--beta", 1, "--head", "fc1, fc2", model="large.safetensors").exit_code == 0
    np.testing.assert_array_equal(bench.calls[0][0].hidden, named["fc1.weight"])


def test_the_page_has_the_verdict_and_the_picture(bench: Bench) -> None:
    bench.answer = FakeCertificate(better=own(), better_objective=1.75, how="9 neurons")
    page = bench.folder / "page.html"
    assert bench.run("--beta", 1, "--report", page).exit_code == 0
    text = page.read_text()
    assert (
        "Your network can be improved by 12.5 %: a network with objective 1.75 instead of 2 was found (9 neurons)."
        in text
    )
    assert "better than that one by more than 14.3 %" in text
    assert "Training objectives: constant output 3, your network 2, best found 1.75; no network is below 1.5." in text
    assert text.index("can be improved") < text.index("<img")
    assert "2 outputs" in text


def test_the_better_network_is_written(bench: Bench) -> None:
    out = bench.folder / "better.safetensors"
    assert "saved" not in bench.run("--beta", 1, "--out", out).output
    assert not out.exists()
    bench.answer = FakeCertificate(better=own(), better_objective=1.6)
    assert "objective 1.6 was found" in bench.run("--beta", 1, "--out", out).output
    assert from_file(out).n_neurons == 5


@pytest.mark.parametrize(
    ("target", "model", "task", "first"),
    [
        (np.arange(20) % 2, "one", "auto", [-1, 1, -1]),
        (["no", "yes"] * 10, "one", "auto", [-1, 1, -1]),
        (np.arange(20) % 3, "one", "auto", [0, 1, 2]),
        (np.arange(20) % 2, "one", "regression", [0, 1, 0]),
        (np.linspace(0, 1, 20) * 19 / 2, "one", "auto", [0, 0.5, 1]),
    ],
)
def test_targets_of_one_output(target: Any, model: str, task: str, first: list[float], bench: Bench) -> None:
    bench.table(label=target)
    assert bench.run("--beta", 1, "--task", task, model=f"{model}.safetensors").exit_code == 0
    np.testing.assert_allclose(bench.calls[0][2][:3, 0], first)


def test_standardising(bench: Bench) -> None:
    bench.table(a=["x", None] * 10, label=np.arange(20) % 2)
    assert bench.refused("column 'a' holds 'x', but a network takes numbers", "--beta", 1)
    assert bench.refused("takes 3 features, but the table gives 4", "--beta", 1, "--standardise")
    bench.table(label=np.arange(20) % 2)
    assert bench.run("--beta", 1, "--standardise").exit_code == 0
    np.testing.assert_allclose(bench.calls[0][1].mean(0), 0, atol=1e-12)


def test_models_of_this_package_bring_their_settings(bench: Bench) -> None:
    frame = pd.read_csv(bench.folder / "t.csv").drop(columns="label")
    encoder = TableEncoder().fit(frame)
    fitted = ConvexMLPRegressor(loss="huber", n_gates=4, tol=0.1, beta=0.7, activation="gated_relu")
    fitted.fit(encoder.transform(frame), frame["a"]).module_ = own(outputs=1)
    save(fitted, bench.folder / "own.safetensors", encoder)
    assert bench.run(model="own.safetensors").exit_code == 0
    (_, X, Y, beta, loss, _), target = bench.calls[0], np.arange(20) % 2
    np.testing.assert_allclose(X, encoder.transform(frame))
    np.testing.assert_array_equal(Y[:, 0], target)
    assert (beta, loss.name) == (0.7, "huber")


def test_a_saved_model_brings_its_proof(bench: Bench) -> None:
    """With the witness, which a fit of rank above 6 has."""
    X = np.random.default_rng(0).standard_normal((20, 8))
    frame = pd.DataFrame(X, columns=list("abcdefgh")).assign(label=X[:, 0])
    frame.to_csv(bench.folder / "wide.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ConvexMLPRegressor(beta=3.0, max_time=1.0, fit_intercept=False).fit(X, X[:, 0])
    save(fitted, bench.folder / "own.safetensors")
    assert bench.run(model="own.safetensors", data="wide.csv").exit_code == 0
    proof = bench.calls[0][-1]["proof"]
    assert proof.dual == fitted.certificate_.dual
    assert len(proof.witness) == len(fitted.certificate_.witness)


def test_a_saved_model_brings_the_weights_of_its_classes(bench: Bench) -> None:
    frame = pd.read_csv(bench.folder / "t.csv")
    frame["label"] = np.where(np.arange(20) % 5 == 0, "rare", "often")
    frame.to_csv(bench.folder / "t.csv", index=False)
    X = frame.drop(columns="label")
    fitted = ConvexMLPClassifier(class_weight="balanced", beta=0.7, tol=0.1).fit(X, frame["label"])
    fitted.save(str(bench.folder / "weighted"))
    result = bench.run(model="weighted")
    assert result.exit_code == 0
    weights = np.where(frame["label"] == "rare", 2.5, 0.625)
    np.testing.assert_allclose(bench.calls[0][5]["sample_weight"], weights)
    assert "logistic loss, class weights balanced, beta 0.7" in result.output


def test_bad_input(bench: Bench) -> None:
    (bench.folder / "m.pt").write_bytes(b"")
    bench.table("wide.csv", d=1.0, label=0)
    bench.table("gaps.csv", a=np.nan, label=np.arange(20) % 2)
    bench.table("three.csv", label=["x", "y", "z", "z"] * 5)
    assert bench.refused("does not say its weight decay; give --beta")
    assert bench.refused("beta must be positive", "--beta", -1)
    assert bench.refused("weight_decay must be positive", "--weight-decay", 0)
    assert bench.refused("both beta=0.1 and weight_decay=0.1", "--beta", 0.1, "--weight-decay", 0.1)
    assert bench.refused("adamw decays weights beside the gradient", "--weight-decay", 0.1, "--optimizer", "adamw")
    assert bench.refused("--decayed-bias must be all", "--beta", 0.1, "--decayed-bias", "some")
    assert bench.refused("reduction must be", "--weight-decay", 0.1, "--reduction", "max")
    assert bench.refused("pickle can run code", "--beta", 1, model="m.pt")
    assert bench.refused("there is no such file", "--beta", 1, model="none.onnx")
    assert bench.refused("there is no column 'lable'", "--beta", 1, target="lable")
    assert bench.refused("takes 3 features, but the table gives 4", "--beta", 1, data="wide.csv")
    assert bench.refused("column 'a' has missing or infinite values", "--beta", 1, data="gaps.csv")
    assert bench.refused("3 classes, but a network with 2 outputs", "--beta", 1, data="three.csv")
    assert bench.refused("2 outputs, but there are 1 targets", "--beta", 1, "--task", "regression")
    assert bench.refused(
        "logistic loss is for classification", "--beta", 1, "--task", "regression", "--loss", "logistic"
    )
    assert bench.refused("loss must be 'auto'", "--beta", 1, "--loss", "cubed")
    assert bench.refused("task must be one of", "--beta", 1, "--task", "guess")
    assert bench.refused("it is also read", "--beta", 1, "--out", bench.model)
    assert bench.refused("a report must end in .html", "--beta", 1, "--report", bench.folder / "page.txt")
