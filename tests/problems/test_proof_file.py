"""Proof files, and the checker that proves them again in exact arithmetic."""

import ast
import json
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from torch import Tensor

from bidual import ConvexAttentionRegressor, ConvexCNNRegressor, ConvexMLPClassifier, ConvexParallelRegressor
from bidual.cli import bidual_check
from bidual.cli.bidual_check import bounds, read_proof, verdict
from bidual.gauges import Group, Nuclear, PerInput
from bidual.losses import LOSSES, Huber, Quantile, Squared
from bidual.losses.decayed_bias import DecayedBias
from bidual.operators import LinearOperator
from bidual.problems.certificate import certify
from bidual.problems.proof_file import NoProofError
from helpers.places import ROOT
from helpers.proof_tools import changed, solved, times

CHECKER = ROOT / "checker" / "bidual_check.py"
NAMES = ("squared", "absolute", "huber", "quantile", "hinge", "squared_hinge", "logistic", "softmax", "poisson")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("c", [1, 3])
def test_every_loss_map_and_gauge(name: str, c: int, tmp_path: Path) -> None:
    """What is proved is what is claimed, up to 1e-9 of the objective."""
    c = max(c, 2) if name == "softmax" else c
    for seed, (which, gauge) in enumerate([(0, Nuclear()), (0, Group()), (1, Nuclear()), (2, Group())]):
        certificate, problem = solved(LOSSES[name](), c, seed, which, gauge, seed < 2)
        certificate.save_proof(tmp_path / "p", problem)
        code, sentence = verdict(tmp_path / "p")
        assert code == 0, sentence
        proved = bounds(read_proof(tmp_path / "p", None))
        assert certificate.dual <= proved.dual <= proved.primal <= certificate.primal
        assert float(proved.primal - proved.dual) == pytest.approx(certificate.gap, abs=1e-9 * certificate.primal)
        assert certificate.dual > 0


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    certificate, problem = solved(Huber(0.7), 2, 1, 0, Nuclear(), True)
    certificate.save_proof(tmp_path / "proof", problem)
    return tmp_path / "proof"


@pytest.mark.parametrize("name", ["point", "dual_point", "X", "targets", "weight", "beta", "offset"])
@pytest.mark.parametrize("factor", [0.9, 1.1, -1.0])
def test_a_changed_number_is_not_proved(name: str, factor: float, proof: Path) -> None:
    """A number matters by far more than the gap of 1e-6; of data only one that makes the objective other."""
    code, sentence = changed(proof, times(name, factor))
    assert code in ((1, 2) if factor < 0 else (1,)), sentence
    assert sentence.startswith("not proved" if code == 1 else "error")


@pytest.mark.parametrize(("name", "step"), [("primal", -1e-5), ("dual", 1e-5), ("primal", -1e-13)])
def test_a_better_claim_is_not_proved(name: str, step: float, proof: Path) -> None:
    assert changed(proof, times(name, 1 + step))[0] == 1


def test_claims_that_are_weaker_are_proved(proof: Path) -> None:
    assert changed(proof, times("primal", 1.01))[0] == 0
    assert changed(proof, times("dual", 0.99))[0] == 0


def test_other_patterns_are_not_proved(proof: Path) -> None:
    assert changed(proof, lambda tables: tables.update(patterns=-tables["patterns"]))[0] == 1


def test_no_right_vectors_no_price(proof: Path) -> None:
    """The nuclear norm is then bounded by a root of the number of columns times the Frobenius norm."""
    code, sentence = changed(proof, lambda tables: tables["right_vectors"].zero_())
    assert (code, "objective" in sentence) == (1, True)


def test_an_unbalanced_dual_point_is_completed_within_its_domain_only(proof: Path) -> None:
    code, sentence = changed(proof, lambda tables: tables["dual_point"].copy_(tables["dual_point"].abs()))
    assert code == 1
    assert "domain" in sentence


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("dual_point"),
        lambda t: t.update(dual_point=t["dual_point"][1:].clone()),
        lambda t: t.update(beta=-t["beta"]),
        lambda t: t.update(beta=t["beta"] * float("nan")),
        lambda t: t["point"][0, 0].fill_(float("inf")),
        lambda t: t["patterns"].fill_(2),
        lambda t: t["anchor"].fill_(10),
        lambda t: t["weight"].zero_(),
        lambda t: t.update(point=t["point"][:, :0].clone(), X=t["X"][:, :0].clone()),
    ],
)
def test_tables_that_do_not_fit_are_refused(change: Callable[[dict[str, Tensor]], Any], proof: Path) -> None:
    code, sentence = changed(proof, change)
    assert code == 2, sentence
    assert sentence.startswith("error: ")


def with_header(path: Path, change: Callable[[bytes], bytes]) -> tuple[int, str]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = change(data[8 : 8 + length])
    other = path.with_name("header")
    other.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    return verdict(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.replace(b'\\"format\\": 1', b'\\"format\\": 2'),
        lambda h: h.replace(b'\\"kind\\": \\"proof\\"', b'\\"kind\\": \\"model\\"'),
        lambda h: h.replace(b"huber", b"other"),
        lambda h: h.replace(b"BLOCKS", b"NOTHING"),
        lambda h: h.replace(b'\\"intercept\\": true', b'\\"intercept\\": 1'),
        lambda h: h.replace(b'"beta":', b'"beta":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"beta":'),
        lambda h: h.replace(b'"shape":[10,3]', b'"shape":[10,999999999999999]'),
        lambda h: h.replace(b'"shape":[10,3]', b'"shape":[10,' + b"9" * 10**5 + b"]"),
        lambda h: b"[" * 10**6,
        lambda h: b"{}",
        lambda h: h[: len(h) // 2],
        lambda h: re.sub(rb'("beta":[^}]*"data_offsets":)[^}]*', rb"\1[0,8]", h),
    ],
)
def test_headers_that_are_none_are_refused(change: Callable[[bytes], bytes], proof: Path) -> None:
    code, sentence = with_header(proof, change)
    assert code == 2, sentence


def test_files_that_are_no_proofs_are_refused(proof: Path) -> None:
    data, other = proof.read_bytes(), proof.with_name("other")
    for content in (b"", data[:100], data[:-1], data + b"\0", b"PK\x03\x04" * 10, json.dumps({}).encode()):
        other.write_bytes(content)
        assert verdict(other)[0] == 2
    assert verdict(proof.with_name("nowhere"))[0] == 2


def test_data_beside_the_proof(tmp_path: Path) -> None:
    certificate, problem = solved(Squared(), 1, 1, 0, Group(), False)
    proof, data = tmp_path / "proof", tmp_path / "data"
    certificate.save_proof(proof, problem, data)
    assert verdict(proof, data)[0] == 0
    assert verdict(proof)[0] == 2
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    code, sentence = verdict(proof, data)
    assert (code, "SHA-256" in sentence) == (2, True)


def test_bits_that_flip_never_prove_more(proof: Path) -> None:
    """Whatever 200 flipped bits make of the file: no traceback, and what is proved stays below a known objective."""
    data, other = proof.read_bytes(), proof.with_name("flipped")
    draw = np.random.default_rng(0)
    (length,) = struct.unpack("<Q", data[:8])
    codes = []
    for _ in range(200):
        copy = bytearray(data)
        copy[draw.integers(0, len(data))] ^= 1 << int(draw.integers(0, 8))
        other.write_bytes(copy)
        code, sentence = verdict(other)
        codes.append(code)
        if code == 0:
            found = bounds(read_proof(other, None))
            assert found.dual <= found.primal, sentence
    assert {1, 2} <= set(codes)
    assert length < len(data)


def test_it_runs_alone(proof: Path) -> None:
    """Without this package, without site-packages, without the environment."""
    command = [sys.executable, "-I", "-S", str(CHECKER)]
    done = subprocess.run([*command, str(proof)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("proved: ")
    done = subprocess.run([*command, str(proof), str(proof)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert subprocess.run(command, capture_output=True).returncode == 2


def test_it_imports_the_standard_library_only() -> None:
    tree = ast.parse(CHECKER.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any(node.level for node in froms)
    names |= {str(node.module) for node in froms}
    assert "fractions" in names
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("x", ["1e-300", "1e-9", "0.3333", "0.75", "1", "1.3334", "2", "12345.678", "1e300"])
def test_logarithms_and_exponentials_are_enclosed(x: str) -> None:
    """By mpmath, with more digits."""
    fraction = bidual_check.Fraction(x)
    with mpmath.workdps(120):
        value = mpmath.mpf(fraction.numerator) / fraction.denominator
        low, high = (mpmath.mpf(b.numerator) / b.denominator for b in bidual_check.log_bounds(fraction))
        assert low <= mpmath.log(value) <= high
        assert high - low < mpmath.mpf(10) ** -50
        for power in (mpmath.log(value), -mpmath.log(value)):
            exact = bidual_check.Fraction(int(power * 2**300), 2**300)
            above = bidual_check.exp_above(exact)
            true = mpmath.exp(mpmath.mpf(exact.numerator) / exact.denominator)
            assert true <= mpmath.mpf(above.numerator) / above.denominator <= true * (1 + mpmath.mpf(10) ** -50)


def test_roots_are_enclosed() -> None:
    for x in (bidual_check.Fraction(2), bidual_check.Fraction(1, 10**40), bidual_check.Fraction(10**301, 7)):
        root = bidual_check.root_above(x)
        assert x < root**2 < x * (1 + bidual_check.Fraction(1, 10**50))


def test_definiteness() -> None:
    """A singular matrix is not proved; one that is 1e-30 larger is."""
    draw = np.random.default_rng(0).integers(-9, 9, (6, 4))
    gram = [[bidual_check.Fraction(int(x)) for x in row] for row in draw @ draw.T]
    assert not bidual_check.is_positive_definite(gram)
    for i in range(6):
        gram[i][i] += bidual_check.Fraction(1, 10**30)
    assert bidual_check.is_positive_definite(gram)
    gram[2][2] -= 1
    assert not bidual_check.is_positive_definite(gram)


def test_what_has_no_proof_yet_is_named(tmp_path: Path) -> None:
    certificate, problem = solved(Squared(), 1, 0, 0, Group(), False)
    with pytest.raises(NoProofError, match="PerInput"):
        certificate.save_proof(tmp_path / "p", replace(problem, gauge=PerInput()))
    decayed = replace(problem.datafit, loss=DecayedBias(Squared(), 9))
    with pytest.raises(NoProofError, match="DecayedBias"):
        certificate.save_proof(tmp_path / "p", replace(problem, datafit=decayed))
    with pytest.raises(ValueError, match="give the problem that was certified"):
        certificate.save_proof(tmp_path / "p", replace(problem, operator=LinearOperator(problem.operator.X, 1)))
    nothing = certify(problem, problem.operator.zeros() + float("nan"))
    with pytest.raises(NoProofError, match="finite"):
        nothing.save_proof(tmp_path / "p", problem)
    assert not list(tmp_path.iterdir())


class Doubled(Quantile):
    """A loss of another class than its name says."""


def test_a_loss_of_a_known_name_but_another_class(tmp_path: Path) -> None:
    certificate, problem = solved(Squared(), 1, 0, 0, Group(), False)
    with pytest.raises(NoProofError, match="Doubled"):
        certificate.save_proof(tmp_path / "p", replace(problem, datafit=replace(problem.datafit, loss=Doubled())))


def test_estimators(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    X, labels = draw.normal(size=(40, 3)), draw.integers(0, 3, 40)
    model = ConvexMLPClassifier(activation="gated_relu", n_gates=4, loss="log_loss", beta=0.5).fit(X, labels)
    model.save_proof(tmp_path / "p")
    code, sentence = verdict(tmp_path / "p")
    assert code == 0, sentence
    assert repr(model.certificate_.dual) in sentence
    with pytest.raises(ValueError, match="without the samples of its fit"):
        pickle.loads(pickle.dumps(model)).save_proof(tmp_path / "q")
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("activation", ["gated_relu", "linear"])
def test_maps_that_are_written_as_matrices(activation: str, tmp_path: Path) -> None:
    """Convolutions and attention; of parallel networks those with given gates."""
    draw = np.random.default_rng(0)
    images, tokens, few = draw.normal(size=(8, 1, 4, 4)), draw.normal(size=(8, 3, 2)), {"beta": 0.3, "tol": 1e-3}
    gates = {} if activation == "linear" else {"n_gates": 5}
    models = [
        ConvexCNNRegressor(activation=activation, **gates, **few).fit(images, draw.normal(size=(8, 2))),
        ConvexAttentionRegressor(activation=activation, **gates, **few).fit(tokens, draw.normal(size=(8, 3, 2))),
    ]
    if gates:
        samples, rows = draw.normal(size=(9, 3)), draw.normal(size=9)
        models.append(ConvexParallelRegressor(activation=activation, **few).fit(samples, rows))
    for model in models:
        model.save_proof(tmp_path / "p")
        code, sentence = verdict(tmp_path / "p")
        assert code == 0, sentence
        proved, claimed = bounds(read_proof(tmp_path / "p", None)), model.certificate_
        assert float(proved.primal - proved.dual) == pytest.approx(claimed.gap, abs=1e-9 * claimed.primal)
        assert changed(tmp_path / "p", times("design", 1.1))[0] == 1
        assert changed(tmp_path / "p", lambda tables: tables.update(design=tables["design"].T.contiguous()))[0] == 2
