"""The scripts beside the package that measure it, at small sizes."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

import calibration
import floor
import flops
import scaling
import scaling_report
import uci
from gated_problems import Case


def test_floor_writes_both_tables(tmp_path, capsys):
    floor.main(["--quick", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "floor.json").read_text())
    assert {row["solver"] for row in found["steps"]} == {"kernel_admm", "eta_newton", "q_interior_point"}
    assert all(row["share"] > 0 for row in found["products"])
    assert all(row["ratio"] > 1 for row in found["steps"])
    assert (tmp_path / "floor.md").read_text().endswith(capsys.readouterr().out[:-1])


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


def test_calibration_writes_a_table_and_a_figure(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    (tmp_path / "uci").mkdir()
    frame = pd.DataFrame({"f0": X[:, 0], "f1": X[:, 1], "label": (X[:, 0] > 0).astype(int)})
    frame.to_csv(tmp_path / "uci" / "plane.csv", index=False)
    options = ["--splits", "1", "--estimators", "ConvexMLPClassifier", "--option", "activation=linear", "tol=1e-2"]
    places = [f"--{name}={tmp_path / name}" for name in ("markdown", "out")] + [f"--figure={tmp_path / 'r.png'}"]
    calibration.main(["--data-dir", str(tmp_path), "--no-rivals", *options, *places])
    assert "ConvexMLPClassifier, log loss" in capsys.readouterr().out
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    outcomes = json.loads((tmp_path / "out").read_text())
    assert [outcome["error"] for outcome in outcomes] == [None, None]
    assert max(outcome["brier"] for outcome in outcomes) < 0.25
