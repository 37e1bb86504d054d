"""Tables of any content: `bidual fit`, `path`, `predict` and `certify` read them or refuse them in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidual import ConvexMLPRegressor
from bidual.estimators.saving import save
from bidual.io.tables import TableEncoder
from fuzz.judging import check_command
from fuzz.scale import tried
from fuzz.texts import csv_bytes, npy_bytes, parquet_bytes, regular_csv

QUICK = ("--max-time", "0.05", "--tol", "0.1")
FEW = {
    "gated_relu": ("--activation", "gated_relu", "--n-gates", "4"),
    "linear": ("--activation", "linear"),
    "relu": ("--activation", "relu", "--oracle", "search", "--n-starts", "4"),
}


@contextmanager
def folder_with(name: str, content: bytes) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        yield Path(folder)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model of a table with columns a and b."""
    frame = pd.DataFrame({"a": np.arange(6.0), "b": list("xyxyxy")})
    encoder = TableEncoder().fit(frame)
    estimator = ConvexMLPRegressor(activation="gated_relu", n_gates=4)
    save(estimator.fit(encoder.transform(frame), np.arange(6.0)), path := tmp_path_factory.mktemp("m") / "m", encoder)
    return path.read_bytes()


@tried(35)
@given(csv_bytes, st.sampled_from(["gated_relu", "linear", "relu"]), st.sampled_from(["auto", "regression", "0.5"]))
def test_fit_on_csv(content: bytes, activation: str, choice: str) -> None:
    more = ("--beta", choice) if choice != "regression" else ("--beta", "auto", "--task", choice)
    with folder_with("t.csv", content) as folder:
        arguments = ("t.csv", "--target", "y", "--out", "m", *FEW[activation], *more, *QUICK)
        check_command(folder, "fit", *arguments, outputs=("m",))


@tried(4)
@given(regular_csv())
def test_cross_validated_fit_on_csv(content: bytes) -> None:
    with folder_with("t.csv", content) as folder:
        check_command(folder, "fit", "t.csv", "--target", "y", "--out", "m", *FEW["gated_relu"], *QUICK, outputs=("m",))


@tried(15)
@given(parquet_bytes())
def test_fit_on_parquet(content: bytes) -> None:
    arguments = ("t.parquet", "--target", "y", "--out", "m", "--activation", "linear", "--beta", "auto")
    with folder_with("t.parquet", content) as folder:
        check_command(folder, "fit", *arguments, "--json", outputs=("m",))


@tried(20)
@given(
    st.one_of(
        csv_bytes.map(lambda raw: (".csv", raw)),
        parquet_bytes().map(lambda raw: (".pq", raw)),
        npy_bytes().map(lambda raw: (".npy", raw)),
    ),
    st.sampled_from(["y", "0", "-1", "a", "99999999999999"]),
)
def test_distributed_fit(table: tuple[str, bytes], target: str) -> None:
    name = f"t{table[0]}"
    arguments = (name, "--target", target, "--out", "m", "--activation", "gated_relu", "--beta", "auto", *QUICK)
    with folder_with(name, table[1]) as folder:
        check_command(folder, "fit", "--distributed", *arguments, outputs=("m",))


@tried(12)
@given(csv_bytes)
def test_path_on_csv(content: bytes) -> None:
    with folder_with("t.csv", content) as folder:
        more = ("--n-betas", "3", *FEW["gated_relu"], *QUICK)
        check_command(folder, "path", "t.csv", "--target", "y", *more)


@tried(15)
@given(content=st.one_of(csv_bytes, regular_csv().map(lambda raw: raw.replace(b"y,", b"a,b,", 1))), json=st.booleans())
def test_predict_on_csv(model: bytes, content: bytes, json: bool) -> None:
    with folder_with("t.csv", content) as folder:
        (folder / "m").write_bytes(model)
        check_command(folder, "predict", "m", "t.csv", *(["--json"] if json else []))


@tried(15)
@given(content=csv_bytes)
def test_certify_on_csv(model: bytes, content: bytes) -> None:
    with folder_with("t.csv", content) as folder:
        (folder / "m").write_bytes(model)
        check_command(folder, "certify", "m", "t.csv", "--target", "y", "--max-time", "0.05")
