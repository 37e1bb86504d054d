import json
from pathlib import Path

import pandas as pd
import pytest
from cli_tools import refused, run, write_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path)


FAST = ("--activation", "gated_relu", "--patterns", 5, "--n-betas", 3, "--ratio", 0.1, "--tol", 1e-2)


def test_table_and_figure(table: Path) -> None:
    figure = table.parent / "path.png"
    code, text, err = run("path", table, "--target", "level", "--figure", figure, *FAST)
    assert (code, err) == (0, "")
    assert "3 certified networks" in text
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_json(table: Path) -> None:
    code, text, _ = run("path", table, "--target", "label", "--json", *FAST)
    rows = json.loads(text)["path"]
    assert code == 0
    assert [row["fraction"] for row in rows] == pytest.approx([1, 10**-0.5, 0.1])
    assert rows[0]["neurons"] == 0
    assert rows[0]["loss"] > rows[-1]["loss"]
    assert all(row["relative_gap"] <= 1e-2 for row in rows)


def test_a_path_of_relu_networks(table: Path) -> None:
    pd.read_csv(table)[["a", "b", "level"]].to_csv(table, index=False)
    code, text, err = run("path", table, "--target", "level", "--n-betas", 3, "--ratio", 0.1, "--json")
    rows = json.loads(text)["path"]
    assert (code, err) == (0, "")
    assert rows[0]["neurons"] == 0 < rows[-1]["neurons"]
    assert all(row["relative_gap"] <= 1e-4 for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "nothing"), "there is no column 'nothing'"),
        (("--figure", "figure.bmp"), "must end in .png"),
        (("--figure", "no/such/folder.png"), "does not exist"),
        (("--ratio", 2), "0 < ratio < 1"),
        (("--n-betas", 0), "count >= 1"),
    ],
)
def test_bad_input(options: tuple[object, ...], message: str, table: Path) -> None:
    assert refused(message, "path", table, "--target", "level", *options)
    assert [file.name for file in table.parent.iterdir()] == [table.name]
