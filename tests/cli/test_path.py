import json
from pathlib import Path

import pandas as pd
import pytest

import bidual
from bidual.reporting.figures import paths_of
from helpers.cli_tools import refused, run, write_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path)


FAST = ("--activation", "gated_relu", "--n-gates", 5, "--n-betas", 3, "--ratio", 0.1, "--tol", 1e-2)


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
        (("--n-betas", 0), "1 <= count"),
    ],
)
def test_bad_input(options: tuple[object, ...], message: str, table: Path) -> None:
    assert refused(message, "path", table, "--target", "level", *options)
    assert [file.name for file in table.parent.iterdir()] == [table.name]


def test_a_path_for_every_seed(table: Path) -> None:
    figure, words = table.parent / "path.svg", ("path", table, "--target", "level", *FAST)
    code, text, err = run(*words, "--seeds", "1,3-4", "--figure", figure, "--json")
    found = json.loads(text)
    assert code == 0
    assert err.count(" of 3 paths)") == 3
    assert found["seeds"] == [1, 3, 4]
    assert [row["seed"] for row in found["path"]] == [1] * 3 + [3] * 3 + [4] * 3
    assert b"<svg" in figure.read_bytes()
    (table.parent / "path.json").write_text(text)
    page = bidual.report(table.parent / "path.json").html
    assert "for each of 3 seeds of the gates" in page
    for seed in (1, 4):
        alone = json.loads(run(*words, "--seed", seed, "--json").out)
        mine = [row for row in found["path"] if row["seed"] == seed]
        for key in ("beta", "loss", "neurons", "relative_gap"):
            assert [row[key] for row in mine] == [row[key] for row in alone["path"]]
    assert found["beta_max"] == max(row["beta"] for row in found["path"])


def test_paths_in_two_processes_are_the_same(table: Path) -> None:
    words = ("path", table, "--target", "level", *FAST, "--seeds", "0-1", "--json")
    serial, both = (json.loads(run(*words, *more).out)["path"] for more in ((), ("--jobs", 2)))
    assert [{**row, "seconds": 0} for row in serial] == [{**row, "seconds": 0} for row in both]


def test_a_table_with_seeds(table: Path) -> None:
    code, text, _ = run("path", table, "--target", "level", *FAST, "--seeds", "7,9")
    assert code == 0
    assert "6 certified networks" in text
    assert "seed" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "a"), "whole numbers such as 0,1,2 or 0-9, got 'a'"),
        (("--seeds", "1,"), "got '1,'"),
        (("--seeds", "-1"), "got '-1'"),
        (("--seeds", "3-1"), "must go upwards"),
        (("--seeds", "0-99999"), "1000 at most"),
        (("--seeds", "0-2,1"), "seeds must differ"),
        (("--seeds", "0,1", "--jobs", 0), "jobs must be at least 1"),
        (("--jobs", 2), "add --seeds"),
        (("--scheduler", "tcp://127.0.0.1:1"), "add --seeds"),
    ],
)
def test_bad_seeds(options: tuple[object, ...], message: str, table: Path) -> None:
    assert refused(message, "path", table, "--target", "level", *FAST, *options)


def test_rows_are_grouped_by_seed() -> None:
    rows = [{"seed": seed, "beta": beta} for seed in (5, 2) for beta in (1.0, 0.5)]
    assert [[row["seed"] for row in line] for line in paths_of(rows)] == [[5, 5], [2, 2]]
    assert paths_of([{"beta": 1.0}, {"beta": 0.5}]) == [[{"beta": 1.0}, {"beta": 0.5}]]
