"""Proof files over all activation patterns: the plane, and cells of the product bound."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual import (
    ConvexMLPClassifier,
    ConvexMLPRegressor,
    ConvexParallelRegressor,
    LayerwiseCNNClassifier,
    NetworkCertificate,
    Scope,
    certify,
)
from bidual.cli.bidual_check import (
    Fraction,
    Proof,
    Table,
    Unproved,
    bounds,
    plane_polar_above,
    product_polar_above,
    read_proof,
    verdict,
)
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.polar.base import steepness
from bidual.polar.search import LocalSearch
from bidual.problems.certificate import judge
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.proof_file import NoProofError
from helpers.proof_tools import changed, times, with_products


def exact(values: np.ndarray) -> Table:
    ratios = [float(x).as_integer_ratio() for x in values.ravel()]
    bits = max(below.bit_length() - 1 for _, below in ratios)
    return Table(values.shape, [above * (2**bits // below) for above, below in ratios], -bits)


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (9, 2), (30, 2), (5, 1)])
def test_the_plane(shape: tuple[int, int], c: int) -> None:
    """No direction of ten thousand is steeper than the bound, and it is the steepest one up to their distance."""
    draw = np.random.default_rng(sum(shape) + c)
    X, V = draw.integers(-3, 4, shape).astype(float), draw.normal(size=(shape[0], c))
    angles = np.linspace(0, 2 * np.pi, 10_000)
    U = np.stack([np.cos(angles), np.sin(angles)])[: shape[1]] if shape[1] == 2 else np.array([[1.0, -1.0]])
    steepest = float(np.linalg.norm(np.maximum(X @ U, 0).T @ V, axis=1).max())
    proof = Proof({}, {"X": exact(X)})
    below, above = Fraction(steepest * (1 - 1e-6)), Fraction(steepest * (1 + 1e-3))
    if steepest:
        assert plane_polar_above(proof, exact(V), below) > below * (1 + Fraction(1, 10**7))
    assert plane_polar_above(proof, exact(V), above + Fraction(1, 10**9)) == above + Fraction(1, 10**9)


CASES = [
    (12, 4, 1, False, 0, {"steps": 5}),
    (10, 3, 2, False, 1, {"steps": 5}),
    (8, 3, 2, True, 2, {"steps": 5}),
    (9, 3, 2, False, 3, {"steps": 5, "most_outputs": 1}),
    (20, 3, 1, False, 4, {"steps": 5, "dense": 1, "clusters": 6}),
    (20, 3, 1, True, 5, {"steps": 5, "dense": 1, "clusters": 6}),
]


@pytest.mark.parametrize("case", CASES)
def test_cells(case: Any, tmp_path: Path) -> None:
    *sizes, settings = case
    certificate, program = with_products(*sizes, **settings)
    certificate.save_proof(tmp_path / "p", program)
    code, sentence = verdict(tmp_path / "p")
    assert code == 0, sentence
    assert "of any width" in sentence
    proved = bounds(read_proof(tmp_path / "p", None))
    assert certificate.dual <= proved.dual <= proved.primal <= certificate.primal
    assert float(proved.primal - proved.dual) == pytest.approx(certificate.gap, abs=1e-9 * certificate.primal)
    assert certificate.dual > 0
    assert_nothing_is_steeper(tmp_path / "p", program, certificate.dual_point)


def bound_or_infinity(proof: Proof, V: Tensor, beta: float) -> float:
    """The checker looks for bounds up to 5/4 of beta."""
    try:
        return float(product_polar_above(proof, exact(V.numpy()), Fraction(beta)))
    except Unproved:
        return float("inf")


def assert_nothing_is_steeper(path: Path, program: Problem, V: Tensor) -> None:
    """Than the checker's bound, whatever beta is: no neuron that a search finds, and none of 2000."""
    X: Tensor = program.operator.X
    found, proof = LocalSearch(X, 64).steepest(V).bracket.lower, read_proof(path, None)
    draws = torch.randn(2000, X.shape[1], dtype=X.dtype, generator=torch.Generator().manual_seed(0))
    steepest = max(found, float(steepness(X, V, draws).max()))
    for beta in (program.beta, steepest * (1 - 1e-9), 0.8 * steepest):
        assert bound_or_infinity(proof, V, beta) >= steepest * (1 - 1e-12)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proofs") / "proof"
    certificate, program = with_products(12, 4, 1, False, 0, steps=5)
    certificate.save_proof(path, program)
    return path


def test_a_trained_network(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 7))
    model = ConvexMLPRegressor(beta=2.0, max_time=1).fit(X, X[:, 0] * X[:, 1])
    assert model.certificate_.witness is not None
    model.save_proof(tmp_path / "p")
    code, sentence = verdict(tmp_path / "p")
    assert code == 0, sentence


CHANGED = [(name, factor) for name in ("X", "targets", "beta", "rows", "lengths") for factor in (0.9, 1.1, -1.0)]
CHANGED += [("point", 1.1), ("point", -1.0), ("neurons", 1.1), ("neurons", -1.0), ("dual_point", -1.0)]


@pytest.mark.parametrize(("name", "factor"), CHANGED)
def test_a_changed_number_is_not_proved(name: str, factor: float, proof: Path) -> None:
    """Others make the network better or the dual point steeper: then the claims are proved again."""
    assert changed(proof, times(name, factor))[0] in ((1, 2) if factor < 0 else (1,))


def in_all_cells(part: str, factor: float) -> Callable[[dict[str, Tensor]], Any]:
    """One cell alone need not be the one that matters."""

    def change(tables: dict[str, Tensor]) -> None:
        for name in [name for name in tables if name.endswith(f".{part}")]:
            tables[name] = (tables[name] * factor).to(tables[name].dtype)

    return change


@pytest.mark.parametrize(
    ("part", "factor"),
    [
        *(("diagonal", 0.9), ("diagonal", 1.1), ("Y", 0.9), ("Y", 1.1), ("omega", -1), ("pairs_ab", 1.1)),
        *(("pairs_ab", -1), ("on_plus", -1), ("form_pairs", -1), ("signs", -1), ("signs", 0), ("row_signs", -1)),
        *(("row_signs", 0), ("row_signs", 2), ("rows", 100), ("places_aa", 100)),
        *(("scale", 1.1), ("scale", 0.9), ("scale", -1)),
    ],
)
def test_changed_multipliers_are_not_proved(part: str, factor: float, proof: Path) -> None:
    """But signs of all cells turned round: they cover all neurons, and other multipliers prove less for them."""
    code, sentence = changed(proof, in_all_cells(part, factor))
    assert code in (1, 2), sentence


def test_changed_cells_are_not_proved(proof: Path) -> None:
    def again(t: dict[str, Tensor]) -> None:
        t.update({f"cell0.{k[6:]}": v.clone() for k, v in t.items() if k.startswith("cell1.")})

    assert changed(proof, again) == (1, "not proved: the cells do not cover all neurons.")
    assert changed(proof, lambda t: t["cell0.signs"].neg_())[0] == 1
    assert changed(proof, lambda t: t["row_of"].copy_(t["row_of"].flip(0)))[0] == 1
    assert changed(proof, lambda t: t["row_of"].add_(1))[0] == 2


def test_a_missing_cell_is_noticed(proof: Path) -> None:
    header = proof.read_bytes()
    cells = sum(b'"cell%d.omega"' % k in header for k in range(1000))
    other = proof.with_name("fewer")
    words = b'\\"cells\\": %d' % cells
    assert header.count(words) == 1
    other.write_bytes(header.replace(words, b'\\"cells\\": %d' % (cells - 1)))
    code, sentence = verdict(other)
    assert (code, "cover" in sentence) == (1, True) or code == 2


def test_an_estimator_in_the_plane(tmp_path: Path) -> None:
    """One feature and a hidden bias, classes with logistic loss and an intercept."""
    draw = np.random.default_rng(1)
    X = draw.normal(size=(20, 1))
    model = ConvexMLPClassifier(beta=0.3).fit(X, np.abs(X[:, 0]) > 0.7)
    model.save_proof(tmp_path / "p")
    code, sentence = verdict(tmp_path / "p")
    assert code == 0, sentence
    assert changed(tmp_path / "p", times("dual", 1 + 1e-4))[0] == 1
    assert changed(tmp_path / "p", times("X", 1.1))[0] == 1
    assert model.certificate_.relative_gap < 1e-4


def test_the_zero_network(tmp_path: Path) -> None:
    X = np.random.default_rng(1).normal(size=(10, 1))
    ConvexMLPRegressor(beta=1e3).fit(X, X[:, 0] ** 2).save_proof(tmp_path / "p")
    assert verdict(tmp_path / "p")[0] == 0


def test_routes_without_a_proof_are_named(tmp_path: Path) -> None:
    X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), X[:, :1]), 1.0)
    program = problem.restricted_to(X[:1])
    oracle = problem.oracle(Faces)
    polar = lambda V: oracle.steepest(V).bracket.upper  # noqa: E731
    found = judge(program, program.operator.zeros(), X[:, :1], polar, Scope.ALL_PATTERNS)
    with pytest.raises(NoProofError, match="enumeration of faces"):
        found.save_proof(tmp_path / "p", program)


def test_families_without_a_proof_over_all_patterns_are_named(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(size=(6, 2))
    network = ConvexParallelRegressor(max_time=0.5).fit(samples, samples[:, 0])
    with pytest.raises(NoProofError, match="ParallelOperator"):
        network.save_proof(tmp_path / "p")
    stages = LayerwiseCNNClassifier()
    stages.module_ = torch.nn.Identity()  # as if fitted
    with pytest.raises(NoProofError, match="LayerwiseCNNClassifier"):
        stages.save_proof(tmp_path / "p")


def test_a_network_trained_elsewhere(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    X = draw.normal(size=(15, 1))
    network = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).double()
    found = certify(network, X, np.abs(X[:, 0]), beta=0.1)
    assert isinstance(found, NetworkCertificate)
    found.save_proof(tmp_path / "p")
    code, sentence = verdict(tmp_path / "p")
    assert code == 0, sentence
    assert repr(found.lower_bound) in sentence
