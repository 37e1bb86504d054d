"""What estimators take and answer in: sparse matrices, tensors, frames (docs/inputs.md)."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bidual
from bidual import ZCAWhitening, regularization_path
from bidual.architectures import GatedMLP
from bidual.estimators import (
    ConvexAttentionRegressor,
    ConvexClassifier,
    ConvexCNNClassifier,
    ConvexMLPClassifier,
    ConvexMLPClassifierCV,
    ConvexMLPRegressor,
    ConvexMLPRegressorCV,
    ConvexParallelClassifier,
    LayerwiseCNNClassifier,
    inputs,
)
from bidual.numerics.sparse import from_scipy
from bidual.patterns import sample_gates

GATED = {"activation": "gated_relu", "n_gates": 6}
LINEAR = {"activation": "linear"}
FORMATS = [
    sparse.csr_array,
    sparse.csc_array,
    sparse.csr_matrix,
    sparse.csc_matrix,
    sparse.coo_array,
    sparse.lil_matrix,
]


def data(n: int = 80, d: int = 12, density: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    return X, np.maximum(X @ rng.standard_normal(d), 0) + 0.1 * rng.standard_normal(n)


X, y = data()
labels = (y > np.median(y)).astype(int)


def assert_same_optimum(one, other):
    """Both certified, so that their objectives and bounds interleave."""
    first, second = one.certificate_, other.certificate_
    assert first.within(one.tol)
    assert second.within(other.tol)
    assert max(first.dual, second.dual) <= min(first.primal, second.primal) * (1 + 1e-12)


@pytest.mark.parametrize("container", FORMATS)
@pytest.mark.parametrize("settings", [GATED, LINEAR], ids=["gated", "linear"])
def test_sparse_fits_are_those_of_full_arrays(container, settings):
    given = container(X)
    before = given.copy()
    model, same = (ConvexMLPRegressor(**settings).fit(each, y) for each in (given, X))
    assert_same_optimum(model, same)
    if settings is GATED:
        assert torch.allclose(model.architecture_.gates, same.architecture_.gates, rtol=1e-12)
    assert np.allclose(model.predict(given), model.predict(X), rtol=1e-12)
    assert model.score(given, y) == pytest.approx(model.score(X, y), rel=1e-12)
    assert type(given) is type(before)
    assert (given != before).nnz == 0


SOLVERS = ["kernel_admm", "active_neurons", "fista", "primal_dual", "interior_point", "burer_monteiro"]


@pytest.fixture
def never_full(monkeypatch):
    """Whoever writes out a sparse tensor of samples fails."""

    def refuse(*_, **__):
        raise AssertionError("samples were written out")

    monkeypatch.setattr(torch.Tensor, "to_dense", refuse)


@pytest.mark.usefixtures("never_full")
@pytest.mark.parametrize("settings", [GATED, LINEAR], ids=["gated", "linear"])
@pytest.mark.parametrize("n", [30, 400], ids=["wide", "narrow"])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_linear_and_gated_fits_never_write_samples_out(settings, n, loss):
    X, y = data(n)
    both = np.stack([y, -y], 1)
    for targets in (y, both):
        ConvexMLPRegressor(**settings, loss=loss, tol=1e-3).fit(sparse.csr_array(X), targets).predict(
            sparse.csr_array(X)
        )


@pytest.mark.usefixtures("never_full")
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_on_sparse_samples(solver):
    """Tolerance of what a slow one reaches; those of small programs are allowed to write their design out."""
    model, same = (
        ConvexMLPRegressor(**GATED, solver=solver, tol=1e-2, max_time=20).fit(each, y)
        for each in (sparse.csr_array(X), X)
    )
    assert_same_optimum(model, same)


@pytest.mark.parametrize("solver", ["eta_newton", "eta_interior_point", "smoothed_newton", "q_interior_point"])
def test_solvers_of_small_programs(solver):
    settings = {**GATED, "solver": solver, "tol": 1e-3}
    few = X[:, :3] if solver == "q_interior_point" else X
    model, same = (ConvexMLPRegressor(**settings).fit(each, y) for each in (sparse.csr_array(few), few))
    assert_same_optimum(model, same)


def test_relu_takes_sparse_samples():
    model, same = (ConvexMLPRegressor(tol=0.5, max_time=5).fit(each, y) for each in (sparse.csc_array(X), X))
    assert model.certificate_.primal == same.certificate_.primal
    assert np.allclose(model.predict(sparse.csr_array(X)), same.predict(X), rtol=1e-9)


def test_relu_refuses_what_is_too_large_written_out(monkeypatch):
    monkeypatch.setattr("bidual.estimators.parameters.available_bytes", lambda device: 10**9)
    large = sparse.random_array((50_000, 20_000), density=1e-7, format="csr", rng=np.random.default_rng(0))
    with pytest.raises(
        ValueError, match=r"shape \(50000, 20000\).* would need 24 GB, and 1 GB .*'gated_relu' or 'linear'"
    ):
        ConvexMLPRegressor().fit(large, np.arange(50_000.0))
    with pytest.raises(ValueError, match="written out in full, would need 24 GB"):
        ConvexParallelClassifier().fit(large, np.arange(50_000) % 2)


def test_sparse_samples_everywhere():
    given, weight = sparse.csr_array(X), np.linspace(0, 1, len(X))
    model = ConvexMLPClassifier(**GATED, loss="log_loss").fit(given, labels, weight)
    assert np.allclose(model.decision_function(given), model.decision_function(X))
    assert np.allclose(model.predict_proba(given), model.predict_proba(X))
    chosen, same = (ConvexMLPClassifierCV(**GATED, n_betas=3, cv=3).fit(each, labels, weight) for each in (given, X))
    assert np.allclose(chosen.cv_scores_, same.cv_scores_, rtol=0.1)
    assert chosen.betas_ == pytest.approx(same.betas_)
    paths = [regularization_path(ConvexMLPRegressor(**GATED), each, y, n_betas=3) for each in (given, X)]
    assert paths[0].beta_max == pytest.approx(paths[1].beta_max)
    for one, other in zip(*(path.solutions for path in paths), strict=True):
        assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-3)


@pytest.mark.slow
def test_sparse_samples_in_processes():
    """Folds in workers: samples and results go through pickles."""
    options = {**GATED, "n_betas": 2, "cv": 2}
    alone, together = (ConvexMLPRegressorCV(**options, n_jobs=k).fit(sparse.csr_array(X), y) for k in (1, 2))
    assert np.array_equal(alone.cv_scores_, together.cv_scores_)


def test_warm_starts_keep_gates_of_sparse_samples():
    model = ConvexMLPRegressor(**GATED, warm_start=True).fit(sparse.csr_array(X), y)
    gates = model.architecture_.gates
    assert model.set_params(beta=0.5 * model.beta_).fit(sparse.csr_array(X), y).architecture_.gates is gates


def test_certify_takes_sparse_samples():
    few, targets = X[:12, :2], y[:12]
    model = ConvexMLPRegressor(beta=0.1).fit(few, targets)
    given, same = (bidual.certify(model, each, targets, 0.1) for each in (sparse.csc_matrix(few), few))
    assert given.lower_bound == pytest.approx(same.lower_bound)
    assert given.objective == pytest.approx(same.objective)


def test_given_architectures_and_parallel_networks():
    given = sparse.csr_array(X)
    gates = sample_gates(from_scipy(given), 5, torch.Generator().manual_seed(0))
    for model in (ConvexClassifier(), ConvexClassifier(architecture=GatedMLP(gates))):
        assert model._keeps_sparse
        assert np.allclose(model.fit(given, labels).decision_function(given), model.decision_function(X))
    parallel = ConvexParallelClassifier(activation="gated_relu", n_subnetworks=4)
    assert np.allclose(parallel.fit(given, labels).decision_function(given), parallel.decision_function(X))


@pytest.mark.parametrize(
    "model",
    [ConvexCNNClassifier(), ConvexAttentionRegressor(), LayerwiseCNNClassifier()],
    ids=lambda m: type(m).__name__,
)
def test_families_of_images_refuse_sparse_samples(model):
    with pytest.raises(ValueError, match=r"must be full arrays, got a sparse csr_array; pass X.toarray\(\)"):
        model.fit(sparse.csr_array(X), labels)
    assert not model.__sklearn_tags__().input_tags.sparse


def test_sparse_targets_and_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"y must be a full array, got a sparse csr_array; pass y.toarray\(\)"):
        ConvexMLPRegressor(**LINEAR).fit(X, sparse.csr_array(y[:, None]))
    bad = sparse.csr_array(X)
    bad.data[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        ConvexMLPRegressor(**LINEAR).fit(bad, y)
    bad.data[3] = 1e200
    with pytest.raises(ValueError, match=r"X holds 1e\+200, beyond"):
        ConvexMLPRegressor(**LINEAR).fit(bad, y)


def frame(n: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {"age": rng.normal(40, 9, n), "income": rng.lognormal(8, 1, n), "town": rng.choice(list("abcdefgh"), n)}
    )
    table["work"] = rng.choice(["none", "some", "much"], n)
    return table, np.where((table.age > 40) ^ table.town.isin(["a", "b", "c"]), "yes", "no")


@pytest.mark.parametrize("settings", [{"activation": "gated_relu", "n_gates": 40}, LINEAR, {"tol": 0.3, "max_time": 5}])
def test_pipeline_of_a_mixed_frame(settings):
    table, answer = frame()
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["age", "income"]), ("words", OneHotEncoder(), ["town", "work"])],
        sparse_threshold=1.0,
    )
    model = make_pipeline(columns, ConvexMLPClassifier(**settings, loss="log_loss")).fit(table, answer)
    assert sparse.issparse(columns.transform(table))
    assert model.score(table, answer) > (0.6 if settings is LINEAR else 0.75)
    assert model.predict_proba(table).shape == (len(table), 2)
    assert set(model.predict(table)) == {"yes", "no"}


def test_tensors_of_all_kinds():
    expected = ConvexMLPRegressor(**GATED).fit(X, y).predict(X)
    wanted = torch.tensor(X, requires_grad=True)
    kinds = [wanted, wanted.detach().to_sparse_coo(), from_scipy(sparse.csr_array(X)), wanted.detach().to_sparse_csc()]
    for given in kinds:
        model = ConvexMLPRegressor(**GATED).fit(given, torch.tensor(y, requires_grad=True), torch.ones(len(y)))
        found = model.predict(given)
        assert isinstance(found, np.ndarray)
        assert np.allclose(found, expected, rtol=1e-2, atol=1e-2)
        assert model.score(given, torch.tensor(y, requires_grad=True)) > 0.5
    assert wanted.requires_grad
    half = torch.tensor(X, dtype=torch.bfloat16)
    assert np.array_equal(model.predict(half), model.predict(half.double().numpy()))


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries():
    model = ConvexMLPRegressor(**GATED).fit(Foreign(X), Foreign(y))
    assert np.array_equal(model.predict(Foreign(X)), ConvexMLPRegressor(**GATED).fit(X, y).predict(X))
    assert inputs.as_plain_array(X) is X


DISPATCH = """
import numpy as np, sklearn, torch
from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ZCAWhitening
X, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(40) % 2
numbers, words = ConvexMLPRegressor(activation="linear"), ConvexMLPClassifier(activation="linear", loss="log_loss")
with sklearn.config_context(array_api_dispatch=True):
    numbers.fit(X, y.double()), words.fit(X, y)
    for found in (numbers.predict(X), words.predict(X), words.decision_function(X), words.predict_log_proba(X)):
        assert isinstance(found, torch.Tensor), type(found)
    assert isinstance(numbers.predict(X.numpy()), np.ndarray)
    assert words.score(X, y) == float((words.predict(X) == y).double().mean())
    assert words.fit(X, np.array(["a", "b"])[y.numpy()]).predict(X).dtype.kind == "U"
    white = ZCAWhitening().fit_transform(X)
    assert isinstance(white, torch.Tensor), type(white)
    chosen = ConvexMLPClassifierCV(activation="linear", n_betas=2, cv=2, scoring="accuracy")
    chosen.fit(X, (X[:, 0] > 0).long())
    assert chosen.best_score_ > 0.8
    assert isinstance(chosen.decision_function(X), torch.Tensor)
assert isinstance(words.predict(X), np.ndarray)
assert np.allclose(ZCAWhitening().fit_transform(X.requires_grad_()), white)
"""


def test_tensors_come_back_where_scikit_learn_dispatches():
    """A process of its own: scipy reads its variable when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.environ['SCIPY_ARRAY_API'] = '1'\n" + DISPATCH],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


NAMED = [
    ConvexMLPRegressor(**GATED),
    ConvexMLPRegressorCV(**GATED, n_betas=2, cv=2),
    ConvexCNNClassifier(image_shape=(1, 3, 4), n_gates=4),
    ConvexAttentionRegressor(token_shape=(3, 4), n_gates=3),
    ConvexParallelClassifier(activation="gated_relu", n_subnetworks=3),
    ConvexClassifier(),
    LayerwiseCNNClassifier(
        image_shape=(1, 3, 4), stages=1, n_gates=2, epochs=1, pooling=1, downsample=(), learning_rate=0.1
    ),
]


@pytest.mark.parametrize("model", NAMED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_of_features(model, library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    names = [f"f{k}" for k in range(X.shape[1])]
    table = frames.DataFrame({name: X[:, k] for k, name in enumerate(names)})
    target = frames.Series(labels)
    model.fit(table, target)
    assert model.feature_names_in_.tolist() == names
    assert isinstance(model.predict(table), np.ndarray)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[names[::-1]])
    model.fit(X, labels)
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_whitening_sets_its_output(library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    table = frames.DataFrame({"a": X[:, 8], "b": X[:, 9]})
    white = ZCAWhitening().set_output(transform=library).fit_transform(table)
    assert isinstance(white, frames.DataFrame)
    assert list(white.columns) == ["a", "b", "zca_constant"]
    assert np.allclose(white.to_numpy(), ZCAWhitening().fit_transform(table.to_numpy()))


LARGE = """
import resource
import numpy as np
from scipy import sparse
from bidual import ConvexMLPRegressor

n, d, k = 50_000, 20_000, 10
rng = np.random.default_rng(0)
X = sparse.csr_array((rng.normal(size=n * k), rng.integers(0, d, n * k), np.arange(0, n * k + 1, k)), shape=(n, d))
y = X @ rng.normal(size=d) + rng.normal(size=n)
ConvexMLPRegressor(activation="linear").fit(X[:50, :5], y[:50])  # what is loaded at first use
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for settings in ({"activation": "linear"}, {"activation": "gated_relu", "n_gates": 5}):
    model = ConvexMLPRegressor(**settings, max_time=20).fit(X, y)
    assert model.certificate_.relative_gap < 0.05, model.certificate_
    assert model.score(X, y) > 0.5
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 500_000, f"{grown} kB"
"""


@pytest.mark.slow
def test_memory_of_a_large_sparse_fit():
    """50,000 x 20,000 with ten entries a row: 8 GB as a full matrix, here less than half a GB on top."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
