import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bidual.estimators.mlp import ConvexMLPRegressor
from bidual.estimators.saving import read
from helpers.cli_tools import refused, run, write_table

GATED = ("--activation", "gated_relu")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path)


@pytest.fixture
def model(table: Path) -> Path:
    path = table.parent / "model.safetensors"
    options = ("--beta", "auto", "--loss", "log_loss", *GATED, "--n-gates", 6, "--tol", 1e-2, "--quiet")
    assert run("fit", table, "--target", "label", "--out", path, *options).code == 0
    return path


def test_predictions_are_those_of_the_model(model: Path, table: Path) -> None:
    code, text, err = run("predict", model, table, "--proba")
    assert (code, err) == (0, "")
    printed = pd.read_csv(StringIO(text))
    saved = read(model)
    assert saved.encoder is not None
    X = saved.encoder.transform(pd.read_csv(table))
    assert printed["prediction"].tolist() == saved.estimator.predict(X).tolist()
    probabilities = printed[["probability_no", "probability_yes"]]
    np.testing.assert_allclose(probabilities, saved.estimator.predict_proba(X), rtol=1e-12)


def test_json_and_files(model: Path, table: Path) -> None:
    out = table.parent / "predictions.csv"
    code, text, _ = run("predict", model, table, "--json", "--out", out)
    columns = json.loads(text)["columns"]
    assert code == 0
    assert columns["prediction"] == pd.read_csv(out)["prediction"].tolist()
    assert run("predict", model, table, "--out", out) == (0, "", "")


def test_models_without_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((20, 3)), columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    named = ConvexMLPRegressor(tol=1e-2).fit(frame[["c", "a"]], frame[["a", "b"]])
    named.save(str(tmp_path / "m"))
    printed = pd.read_csv(StringIO(run("predict", tmp_path / "m", tmp_path / "t.csv").out))
    np.testing.assert_allclose(printed, named.predict(frame[["c", "a"]]), rtol=1e-12)
    frame[["a"]].to_csv(tmp_path / "t.csv", index=False)
    assert "the table lacks 'c'" in run("predict", tmp_path / "m", tmp_path / "t.csv").err


def test_bad_input(model: Path, table: Path) -> None:
    folder = table.parent
    pd.read_csv(table).drop(columns=["a", "shade"]).to_csv(folder / "less.csv", index=False)
    (folder / "cut.safetensors").write_bytes(model.read_bytes()[:-9])
    (folder / "text.safetensors").write_text("no model" * 9)
    before = sorted(folder.iterdir())
    for arguments, message in [
        ((folder / "none", table), "there is no such file"),
        ((folder / "cut.safetensors", table), "cut off"),
        ((folder / "text.safetensors", table), "not a model file"),
        ((model, folder / "none.csv"), "there is no such file"),
        ((model, folder / "less.csv"), "the table lacks 'a', 'shade'"),
        ((model, table, "--out", folder / "none" / "p.csv"), "does not exist"),
    ]:
        assert refused(message, "predict", *arguments)
    assert sorted(folder.iterdir()) == before


def test_probabilities_need_a_loss_that_has_them(table: Path) -> None:
    out = table.parent / "m"
    options = ("--beta", "auto", "--loss", "hinge", *GATED, "--n-gates", 4, "--quiet")
    run("fit", table, "--target", "label", "--out", out, *options)
    assert refused("gives no probabilities; train with --loss log_loss or squared", "predict", out, table, "--proba")
    run("fit", table, "--target", "level", "--out", out, "--beta", "auto", *GATED, "--n-gates", 4, "--quiet")
    assert refused("train with --task classification, or omit --proba", "predict", out, table, "--proba")


def test_squared_loss_has_probabilities(table: Path) -> None:
    out, options = table.parent / "m", ("--beta", "auto", *GATED, "--n-gates", 4, "--quiet")
    assert run("fit", table, "--target", "label", "--out", out, *options).code == 0
    printed = pd.read_csv(StringIO(run("predict", out, table, "--proba").out))
    scores = read(out).estimator.decision_function(read(out).encoder.transform(pd.read_csv(table)))
    np.testing.assert_allclose(printed["probability_yes"], np.clip((1 + scores) / 2, 0, 1), atol=1e-12)
    assert (printed["prediction"] == np.where(printed["probability_yes"] > 0.5, "yes", "no")).all()
