import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from bidual.estimators.cv import ConvexMLPClassifierCV
from bidual.estimators.mlp import ConvexMLPClassifier
from bidual.estimators.saving import load, read
from helpers.cli_tools import refused, run, write_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path)


FAST = ("--tol", 1e-2)
GATED = ("--activation", "gated_relu", "--n-gates", 6, *FAST)


def test_fit_chooses_beta_and_reports(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bidual.ConvexMLPClassifierCV", partial(ConvexMLPClassifierCV, n_betas=3, cv=2))
    out = table.parent / "model.safetensors"
    code, text, err = run("fit", table, "--target", "label", "--out", out, *GATED)
    assert (code, err) == (0, "")
    for fact in ("classification", "relative gap", "cv accuracy", "train accuracy", "neurons", "seconds", str(out)):
        assert fact in text
    assert type(load(out)).__name__ == "ConvexMLPClassifierCV"


def test_json_is_pure_and_the_model_remembers_the_table(table: Path) -> None:
    out = table.parent / "model.safetensors"
    code, text, err = run("fit", table, "--target", "level", "--beta", "auto", "--out", out, "--json", *GATED)
    facts = json.loads(text)
    assert (code, err, facts["task"]) == (0, "", "regression")
    assert (facts["relative_gap"] <= 1e-2, facts["scope"]) == (True, "BLOCKS")
    assert facts["beta"] == pytest.approx(0.1 * facts["beta_max"])
    assert facts["primal"] >= facts["dual"]
    saved = read(out)
    assert saved.encoder is not None
    score = saved.estimator.score(saved.encoder.transform(pd.read_csv(table)), pd.read_csv(table)["level"])
    assert score == pytest.approx(facts["train_r2"])


def test_the_default_is_a_relu_network_certified_over_all_patterns(table: Path) -> None:
    pd.read_csv(table)[["a", "b", "label"]].to_csv(table, index=False)
    out = table.parent / "model.safetensors"
    code, text, err = run("fit", table, "--target", "label", "--beta", "auto", "--out", out, "--json")
    facts = json.loads(text)
    assert (code, err, facts["scope"]) == (0, "", "ALL_PATTERNS")
    assert facts["relative_gap"] <= 1e-4
    assert load(out).get_params()["activation"] == "relu"


def test_quiet_prints_nothing_and_options_arrive(table: Path) -> None:
    out = table.parent / "model.safetensors"
    options = ("--task", "regression", "--activation", "linear", "--loss", "huber", "--penalty", "frobenius")
    assert run("fit", table, "--target", "level", "--beta", 0.5, "--out", out, "--quiet", *options, *FAST) == (
        0,
        "",
        "",
    )
    parameters = load(out).get_params()
    assert parameters["beta"] == 0.5
    assert [parameters[name] for name in ("activation", "loss", "penalty", "verbose")] == [
        "linear",
        "huber",
        "frobenius",
        0,
    ]


BAD: dict[str, tuple[tuple[object, ...], str]] = {
    "target": (("--target", "lable"), "did you mean 'label'"),
    "task": (("--task", "ranking"), "task must be one of"),
    "negative beta": (("--beta", "-1"), "positive"),
    "NaN beta": (("--beta", "nan"), "positive"),
    "beta text": (("--beta", "big"), "beta must be cv, auto or a positive number, got 'big'"),
    "solver": (("--solver", "magic"), "solver must be"),
    "solver and gauge": (
        ("--activation", "gated_relu", "--solver", "burer_monteiro", "--penalty", "per_output", "--target", "shade"),
        "burer_monteiro",
    ),
    "solver of another activation": (("--solver", "fista"), "for relu, got 'fista'"),
    "penalty of another activation": (("--penalty", "frobenius"), "a relu network has the price of weight decay"),
    "activation": (("--activation", "tanh"), "activation must be one of"),
    "loss": (("--loss", "magic"), "loss must be"),
    "loss of the task": (("--target", "level", "--loss", "hinge"), "is for classifiers"),
    "penalty": (("--penalty", "l0"), "penalty must be one of"),
    "gates": (("--activation", "gated_relu", "--n-gates", 0), "n_gates must be 'auto' or a positive whole number"),
    "gates of another activation": (("--n-gates", 5), "n_gates is for activation='gated_relu', got activation='relu'"),
    "starts of another activation": (("--activation", "linear", "--n-starts", 5), "n_starts is for activation='relu'"),
    "oracle": (("--oracle", "magic"), "oracle must be one of ['auto', 'exact', 'search'], got 'magic'"),
    "memory": (("--n-starts", 10**13), "lower n_starts"),
    "memory of gates": (("--activation", "gated_relu", "--n-gates", 10**13), "lower n_gates"),
    "tol": (("--tol", 2), "tol must be between"),
    "time": (("--max-time", -1), "max_time must be"),
    "option": (("--frobnicate",), "No such option"),
    "whole number": (("--n-gates", "many"), "--n-gates"),
    "regression of texts": (("--task", "regression"), "regression needs numbers"),
    "quantile": (("--target", "level", "--quantile", 1.5), "quantile must be a number between 0 and 1, got 1.5"),
    "quantile of labels": (("--quantile", 0.5), "quantile loss is for numbers, not for classes"),
    "quantile of another loss": (("--quantile", 0.5, "--loss", "huber"), "--quantile has a loss of its own"),
    "scoring without folds": (("--scoring", "r2"), "are for the folds of a cross-validation; use --beta cv"),
    "groups without folds": (("--groups", "shade"), "are for the folds of a cross-validation; use --beta cv"),
    "scoring": (("--beta", "cv", "--scoring", "magic"), "scoring must be None, a name in"),
    "groups": (("--beta", "cv", "--groups", "shape"), "there is no column 'shape'; did you mean 'shade'"),
    "scoring of another task": (("--beta", "cv", "--scoring", "r2"), "scoring='r2' cannot score the held-out part"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options(name: str, table: Path) -> None:
    if name == "solver and gauge":
        three = pd.read_csv(table).assign(shade=np.array(["a", "b", "c"])[np.arange(40) % 3])
        three.to_csv(table, index=False)
    out = table.parent / "model.safetensors"
    out.write_text("old")
    options, message = BAD[name]
    assert refused(message, "fit", table, "--target", "label", "--out", out, "--beta", "auto", *options)
    assert out.read_text() == "old"
    assert {file.name for file in table.parent.iterdir()} == {table.name, out.name}


BAD_TABLES: dict[str, tuple[str, str]] = {
    "empty": ("", "is empty"),
    "no rows": ("a,label\n", "no rows"),
    "one class": ("a,label\n1,x\n2,x\n3,x\n", "at least two classes"),
    "infinity": ("a,label\n1,x\ninf,y\n3,x\n", "infinity"),
    "missing target": ("a,label\n1,x\n2,\n3,y\n", "missing in 1 of 3 rows"),
    "target only": ("label\nx\ny\n", "only column"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables(name: str, tmp_path: Path) -> None:
    content, message = BAD_TABLES[name]
    (tmp_path / "t.csv").write_text(content)
    assert refused(message, "fit", tmp_path / "t.csv", "--target", "label", "--out", tmp_path / "m", "--beta", "auto")
    assert not (tmp_path / "m").exists()


def test_places_that_cannot_be_written_are_refused_before_the_table_is_read(tmp_path: Path) -> None:
    missing = (tmp_path / "none.csv", "--target", "y", "--out")
    assert refused("the folder", "fit", *missing, tmp_path / "none" / "m")
    assert refused("is a folder", "fit", *missing, tmp_path)


def test_a_fit_that_runs_out_of_time_warns_and_is_saved(table: Path) -> None:
    out = table.parent / "model.safetensors"
    options = ("--beta", "auto", "--tol", 1e-9, "--max-time", 1e-6)
    code, _, err = run("fit", table, "--target", "label", "--out", out, "--quiet", *options)
    assert code == 0
    assert err.startswith("warning: certified relative gap")
    assert err.count("\n") == 1
    assert out.exists()


def test_the_table_is_never_overwritten_by_the_model(table: Path) -> None:
    before = table.read_text()
    assert refused("it is also read", "fit", table, "--target", "label", "--out", table)
    assert table.read_text() == before


def test_other_separators_are_named(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a;label\n1;x\n2;y\n")
    assert refused("separated by ';'; save it with commas", "fit", table, "--target", "label", "--out", tmp_path / "m")


def test_balanced_classes(table: Path) -> None:
    frame = pd.read_csv(table)
    pd.concat([frame[frame["label"] == "no"], frame[frame["label"] == "yes"][:4]]).to_csv(table, index=False)
    out, options = table.parent / "m", ("--beta", 1.0, *GATED, "--quiet", "--class-weight", "balanced")
    assert run("fit", table, "--target", "label", "--out", out, *options).code == 0
    saved, rows = read(out), pd.read_csv(table)
    assert saved.encoder is not None
    weights = compute_sample_weight("balanced", rows["label"])
    plain = ConvexMLPClassifier(activation="gated_relu", n_gates=6, beta=1.0, tol=1e-2)
    plain.fit(saved.encoder.transform(rows), rows["label"], sample_weight=weights)
    assert saved.estimator.class_weight == "balanced"
    assert saved.estimator.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-9)


def test_bad_class_weights(table: Path) -> None:
    fit = ("fit", table, "--out", table.parent / "m", *GATED, "--class-weight")
    assert refused("class_weight must be None, 'balanced' or a dict", *fit, "even", "--target", "label")
    assert refused("for classification, but the task is regression", *fit, "balanced", "--target", "level")


def test_folds_keep_groups_together_and_are_judged_by_a_scorer(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    fit = ConvexMLPClassifierCV.fit

    def watched(self, X, y, **given):
        seen.append((self.cv, list(X.columns), given["groups"]))
        return fit(self, X, y, **given)

    pd.read_csv(table).assign(shop=np.array(["x", "y", "z"])[np.arange(40) % 3]).to_csv(table, index=False)
    monkeypatch.setattr("bidual.ConvexMLPClassifierCV", partial(ConvexMLPClassifierCV, n_betas=2))
    monkeypatch.setattr(ConvexMLPClassifierCV, "fit", watched)
    out = table.parent / "model.safetensors"
    options = ("--target", "label", "--activation", "linear", "--groups", "shop", "--scoring", "roc_auc", "--json")
    code, text, err = run("fit", table, "--out", out, *options)
    assert (code, err) == (0, "")
    [(cv, columns, groups)] = seen
    assert (type(cv).__name__, cv.get_n_splits()) == ("StratifiedGroupKFold", 3)
    assert not any("shop" in name for name in columns)
    np.testing.assert_array_equal(groups, np.arange(40) % 3)
    assert json.loads(text)["cv"]["score"] == "roc_auc"
    assert json.loads(text)["cv_roc_auc"] > 0.8
    assert load(out).cv is None
    assert run("predict", out, table).code == 0  # the column may be there, or not


def test_a_quantile_is_predicted(table: Path) -> None:
    out = table.parent / "model.safetensors"
    options = ("--target", "level", "--beta", 1e-3, "--activation", "linear", "--quantile", 0.9)
    assert run("fit", table, "--out", out, *options).code == 0
    saved, frame = read(out), pd.read_csv(table)
    assert saved.encoder is not None
    above = saved.estimator.predict(saved.encoder.transform(frame)) - frame["level"].to_numpy()
    assert (above > 0.03).mean() <= 0.9 <= (above > -0.03).mean()  # some targets are on the plane
