"""`bidual check`: codes and sentences; what is proved is in tests/problems/test_proof_file.py."""

from pathlib import Path

import numpy as np
import pandas as pd

from bidual import ConvexMLPRegressor
from helpers.cli_tools import refused, run, write_table


def test_a_proof_a_false_one_and_no_proof(tmp_path: Path) -> None:
    proof, data = tmp_path / "fit.proof", tmp_path / "data"
    X = np.random.default_rng(0).normal(size=(20, 3))
    ConvexMLPRegressor(activation="linear", beta=0.5).fit(X, X[:, 0] + X[:, 1] ** 2).save_proof(proof, data)
    code, text, err = run("check", proof, data)
    assert (code, err) == (0, "")
    assert text.startswith("proved: ")
    code, text, err = run("check", proof)
    assert (code, text) == (2, "")
    assert "name their file too" in err
    proof.write_bytes(proof.read_bytes()[:-8])
    assert run("check", proof, data).code == 2


def test_a_claim_that_is_too_good(tmp_path: Path) -> None:
    proof = tmp_path / "fit.proof"
    X = np.random.default_rng(0).normal(size=(20, 3))
    model = ConvexMLPRegressor(activation="linear", beta=0.5).fit(X, X[:, 0])
    claimed = np.float64(model.certificate_.dual).tobytes()
    model.save_proof(proof)
    assert proof.read_bytes().count(claimed) == 1
    proof.write_bytes(proof.read_bytes().replace(claimed, np.float64(2 * model.certificate_.primal).tobytes()))
    code, text, err = run("check", proof)
    assert (code, err) == (1, "")
    assert text.startswith("not proved: the lower bound is ")


def test_fit_and_certify_write_proofs(tmp_path: Path) -> None:
    """Of a gated network, and of how good it would be as a ReLU network of one feature and a bias."""
    data, model, proof = tmp_path / "data.csv", tmp_path / "model.safetensors", tmp_path / "fit.proof"
    x = np.random.default_rng(0).normal(size=25)
    pd.DataFrame({"x": x, "y": np.abs(x)}).to_csv(data, index=False)
    settings = ("--target", "y", "--out", model, "--beta", 0.5)
    assert run("fit", data, *settings, "--activation", "linear", "--proof", proof).code == 0
    assert run("check", proof).out.startswith("proved: ")
    assert "convex program" in run("check", proof).out
    assert run("fit", data, *settings).code == 0
    assert run("certify", model, data, "--target", "y", "--proof", proof).code == 0
    assert "no two-layer ReLU network of any width" in run("check", proof).out


def test_proofs_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    table, model = write_table(tmp_path), tmp_path / "m.safetensors"
    fit = ("fit", table, "--target", "label", "--out", model)
    assert refused("is also read", *fit, "--proof", table)
    assert refused("is also read", *fit, "--proof", model)
    assert refused("in one process", *fit, "--proof", tmp_path / "p", "--distributed")
    assert refused("does not exist", *fit, "--proof", tmp_path / "none" / "p")
    assert not model.exists()
