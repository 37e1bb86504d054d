"""The scripts beside the package that measure it, at small sizes."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import StratifiedShuffleSplit

import calibration
import certify_shared
import certify_trained
import defaults
import floor
import flops
import gates
import gates_elsewhere
import large
import parallel_gaps
import regression
import scaling
import scaling_report
import splits
import uci
from gated_problems import Case


def test_floor_writes_both_tables(tmp_path, capsys):
    floor.main(["--quick", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "floor.json").read_text())
    assert {row["solver"] for row in found["steps"]} == {"kernel_admm", "eta_newton", "q_interior_point"}
    assert all(row["share"] > 0 for row in found["products"])
    assert all(row["ratio"] > 0.3 for row in found["steps"])  # above 1, but other processes disturb so short runs
    assert (tmp_path / "floor.md").read_text().endswith(capsys.readouterr().out[:-1])


def test_networks_trained_in_torch_are_judged_at_the_share_they_were_trained_with(tmp_path):
    found = certify_trained.main(["--quick", "--seconds", "0.3", "--out", str(tmp_path)])
    assert [row.case.share for row in found] == [0.1, 0.03, None, 0.1, 0.1]
    assert found[0].beta == pytest.approx(found[1].beta / 0.3, rel=1e-9)
    assert found[2].beta == pytest.approx(40 * 1e-4 / 2)
    assert all(row.verdict.lower_bound <= row.verdict.best <= row.verdict.objective for row in found)
    assert str(found[-1]) in (tmp_path / "certify_trained.md").read_text()


def test_operations_by_formula():
    case = Case(10, 2, 3, 0.1, 5)
    assert flops.product_flops(case) == 4 * 10 * 2 * 3 * 5
    assert flops.admm_work(case, 3).single == flops.product_flops(case) + 2 * 10**2 * 5
    assert flops.product_bytes(case, 8) == 2 * flops.product_bytes(case, 4)


def test_a_point_of_the_scaling_run_is_a_process_of_its_own():
    sweep = scaling.SWEEPS[3]
    found = scaling.point(sweep, Case(40, 3, 5, 0.1, 7, "frobenius"), 1)
    assert (found.size, found.error) == (7, "")
    assert found.reached
    assert found.seconds > 0


def test_exponents_are_fitted_to_the_upper_half_without_failures(tmp_path):
    (sweep,) = scaling.SWEEPS[:1]
    sizes = (1, 10, 20, 50, 100)
    points = [scaling_report.Point("n", n, sweep.base, 3.0 * n**1.5, 2.0 * n, 1e-5) for n in sizes]
    points[:1] = [scaling_report.Point("n", 1, sweep.base, 1e5, 1e5, 1e-5)]
    points[3] = scaling_report.Point("n", 50, sweep.base, error="gone")
    assert scaling_report.fit(points, "seconds") == pytest.approx((1.5, 3.0))
    scaling.write(tmp_path, [sweep], points, "text")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "scaling.json").read_text())["fits"]["n"]["megabytes"] == pytest.approx([1.0, 2.0])
    assert any("gone" in line for line in scaling_report.table([sweep], points))


def test_calibration_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    q = rng.uniform(size=300)
    y = np.where(rng.uniform(size=300) < q, "yes", "no")
    found = calibration.scores(np.stack([1 - q, q], 1), np.array(["no", "yes"]), y, 10**6)
    assert found["log_loss"] == pytest.approx(log_loss(y == "yes", q))
    assert found["brier"] == pytest.approx(brier_score_loss(y == "yes", q))
    bins = calibration.reliability(np.array(found["predicted"]), np.array(found["happened"]))
    happened, predicted = calibration_curve(y == "yes", q, n_bins=10)
    np.testing.assert_allclose(bins[["predicted", "happened"]], np.stack([predicted, happened], 1))
    assert calibration.calibration_error(bins) < 0.1
    wrong = calibration.scores(np.array([[1.0, 0.0]]), np.array([0, 1]), np.array([1]), 8)
    assert (wrong["log_loss"], wrong["brier"], wrong["accuracy"]) == (pytest.approx(np.log(10)), 1.0, 0.0)


def test_tables_of_accuracies_say_how_far_the_first_model_leads():
    scores = {"ours": [(0.8, 0.6), (0.9, 0.9)], "theirs": [(0.6, 0.6), (0.9, 0.8)]}
    outcomes = [
        uci.Outcome(name, split, model, pairs[k][split], 1.0 + split, gap=0.01 if model == "ours" else None)
        for k, name in enumerate(["first", "second"])
        for split in range(2)
        for model, pairs in scores.items()
    ]
    text = uci.markdown(outcomes)
    assert "| **mean** | **0.8000** | **0.7250** |" in text
    assert "| seconds per fit, median | 1.50 | 1.50 |" in text
    assert "ours against theirs: +0.0750 with a standard error of 0.0250; 2 wins, 0 ties, 0 losses" in text
    broken = [uci.Outcome("first", 2, "theirs", None, 0.1, error="ValueError: no"), *outcomes]
    assert "failed: theirs on first, split 2: ValueError: no" in uci.markdown(broken)


@pytest.fixture
def data(tmp_path):
    """A folder with one set of three classes, which a linear network can tell apart."""
    y = np.arange(60) % 3
    X = np.random.default_rng(0).standard_normal((60, 2)) + 5 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1)
    (tmp_path / "uci").mkdir()
    frame = pd.DataFrame({"f0": X[:, 0], "f1": X[:, 1], "label": y})
    frame.to_csv(tmp_path / "uci" / "corners.csv", index=False)
    return tmp_path


def test_splits_are_those_of_scikit_learn_in_as_many_processes_as_asked_for(monkeypatch):
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    asked = []

    def in_this_process(n_jobs):
        asked.append(n_jobs)
        return lambda tasks: [function(*given) for function, given, _ in tasks]

    monkeypatch.setattr(splits, "Parallel", in_this_process)
    args = splits.parser_of_splits("").parse_args(["--jobs", "3", "--splits", "2", "--seed", "5"])
    found = splits.on_splits(lambda split: [split], {"a": lambda: (X, y)}, args)
    assert asked == [3]
    wanted = StratifiedShuffleSplit(2, test_size=0.25, random_state=5).split(X, y)
    for split, (train, test) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(split.test, test)
        X_train, y_train, X_test, _ = split.parts
        np.testing.assert_allclose(X_train.std(0), 1)
        np.testing.assert_allclose(X_test, (X[test] - X[train].mean(0)) / X[train].std(0))
        np.testing.assert_array_equal(y_train, y[train])


def run_script(script, folder, *options):
    """What a script writes as JSON."""
    place = folder / "outcomes.json"
    script.main([f"--out={place}", *options])
    return json.loads(place.read_text())


def test_calibration_writes_a_table_and_a_figure(data, capsys):
    options = ["--splits", "1", "--estimators", "ConvexMLPClassifier", "--option", "activation=linear", "tol=1e-2"]
    places = [f"--markdown={data / 't.md'}", f"--figure={data / 'r.png'}"]
    outcomes = run_script(calibration, data, f"--data-dir={data}", "--no-rivals", *options, *places)
    assert "ConvexMLPClassifier, log loss" in capsys.readouterr().out
    assert (data / "t.md").read_text().startswith("| model | log loss |")
    assert (data / "r.png").read_bytes().startswith(b"\x89PNG")
    assert [outcome["error"] for outcome in outcomes] == [None, None]
    assert max(outcome["brier"] for outcome in outcomes) < 0.25


def test_accuracies_of_three_classes_and_of_every_model(data, monkeypatch):
    monkeypatch.setattr(uci, "RIVALS", {"dummy": DummyClassifier})
    options = ["--option", "activation=linear", "n_betas=2", "--jobs", "1", "--splits", "1"]
    monkeypatch.delitem(uci.CONVEX, "ConvexMLPClassifier")  # has no n_betas
    outcomes = run_script(uci, data, f"--data-dir={data}", *options)
    found = {outcome["model"]: outcome["accuracy"] for outcome in outcomes}
    assert found["ConvexMLPClassifierCV"] == found["gated, CV"] > 0.9 > found["dummy"]


def test_accuracies_of_chosen_models_and_of_written_outcomes(data, monkeypatch, capsys):
    monkeypatch.setattr(uci, "RIVALS", {"dummy": DummyClassifier, "other": DummyClassifier})
    written = run_script(uci, data, f"--data-dir={data}", "--jobs", "1", "--splits", "1", "--models", "dummy")
    assert [outcome["model"] for outcome in written] == ["dummy"]
    printed = capsys.readouterr().out
    uci.main([f"--of={data / 'outcomes.json'}"])
    assert capsys.readouterr().out == printed


def test_large_tables(capsys):
    large.main(["--rows", "60", "--activations", "gated_relu"])
    head, _, row = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    found = dict(zip(head, row, strict=True))
    assert found["rows"] == "60 x 12"
    assert float(found["certified gap"]) <= 1e-4


def test_defaults_of_three_classes(data, monkeypatch, capsys):
    monkeypatch.setattr(defaults, "SHARES", np.array([0.3, 0.1, 0.03]))
    options = [f"--data-dir={data}", "--splits", "1"]
    outcomes = run_script(defaults, data, *options, "--option", "hidden_bias=False")
    assert [outcome["used"] for outcome in outcomes] == ["squared", "log_loss"]
    assert "| beta by | squared | log_loss |" in capsys.readouterr().out
    assert max(outcomes[1]["test"]) > 0.9
    assert np.shape(outcomes[0]["loss"]) == (len(defaults.SHARES), 5)
    with pytest.raises(TypeError, match="no_such"):
        defaults.main([*options, "--option", "no_such=1"])


def test_gates_of_three_classes(data, capsys):
    """Two of them at most would be distinguished by the sign of one output."""
    options = ["--gates", "10", "auto", "--splits", "1", "--draws", "2", "--option", "hidden_bias=False"]
    outcomes = run_script(gates, data, f"--data-dir={data}", *options)
    assert [outcome["gates"] for outcome in outcomes] == ["10", "auto"]
    assert max(outcomes[1]["accuracies"]) > 0.9
    assert [len(outcome["optima"]) for outcome in outcomes] == [2, 2]
    assert "mean accuracy" in capsys.readouterr().out


def test_gates_elsewhere_of_classes_and_of_numbers(tmp_path, capsys):
    options = ["--tables", "wine", "Friedman 3", "--gates", "10", "--splits", "1"]
    outcomes = run_script(gates_elsewhere, tmp_path, *options)
    assert [outcome["name"] for outcome in outcomes] == ["wine", "Friedman 3"]
    assert max(outcomes[0]["scores"]) > 0.9 > max(outcomes[1]["scores"]) > 0.3
    assert "at 0.01" in capsys.readouterr().out


def test_regression_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(regression, "RIVALS", {"dummy": DummyRegressor})
    monkeypatch.delitem(regression.CONVEX, "ConvexMLPRegressor")  # has no n_betas
    options = ["--tables", "sparse and linear, 400 x 10", "--splits", "1", "--jobs", "1"]
    outcomes = run_script(regression, tmp_path, *options, "--option", "activation=linear", "n_betas=2")
    found = {outcome["model"]: outcome["accuracy"] for outcome in outcomes}
    assert found["ConvexMLPRegressorCV"] == found["gated, CV"] > 0.5
    assert abs(found["dummy"]) < 0.2


def test_a_row_of_parallel_gaps():
    n, rank, noise, seed, share, early, gap, seconds, _ = parallel_gaps.row(20, 4, 0.5, 1, 0.3, 0.5).split("|")[1:-1]
    assert [int(n), int(rank), float(noise), int(seed), float(share)] == [20, 4, 0.5, 1, 0.3]
    assert 0 <= float(gap) <= float(early) < 1  # of four digits
    assert float(seconds) > 0


def test_networks_that_share_weights_are_trained_and_judged(capsys):
    certify_shared.main(["--samples", "12", "--shares", "0.3", "--seconds", "0.1", "--epochs", "30"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith(("| cnn", "| att"))]
    assert [found[0] for found in rows] == ["| cnn, n = 12", "| attention, n = 12"]
    for found in rows:
        objective, better, bound = (float(number) for number in found[3:6])
        assert 0 <= bound <= better <= objective
