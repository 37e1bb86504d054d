"""`bidual check`: codes and sentences; what is proved is in tests/problems/test_proof_file.py."""

from pathlib import Path

import numpy as np

from bidual import ConvexMLPRegressor
from helpers.cli_tools import run


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
