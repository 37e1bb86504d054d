import json
from pathlib import Path

import pandas as pd
import pytest

from helpers.cli_tools import refused, run, write_table

FAST = ("--activation", "gated_relu", "--n-gates", 5, "--tol", 1e-2)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path)


@pytest.fixture
def model(table: Path) -> Path:
    path = table.parent / "model.safetensors"
    assert run("fit", table, "--target", "label", "--out", path, "--beta", "auto", *FAST).code == 0
    return path


def test_a_model_with_and_without_its_data(model: Path, table: Path) -> None:
    page = model.with_name("page.html")
    code, text, err = run("report", model, "--out", page, "--title", "My <model>")
    assert (code, err) == (0, "")
    assert "Gap over time" in text
    assert "<h1>My &lt;model&gt;</h1>" in page.read_text(encoding="utf-8")
    code, text, _ = run("report", model, "--data", table, "--target", "label", "--out", page, "--json")
    found = json.loads(text)
    assert {"Confusion matrix", "Active patterns", "Neurons"} <= set(found["sections"])
    assert found["bytes"] == page.stat().st_size


@pytest.mark.parametrize(
    ("command", "section"),
    [(("path", "--n-betas", 3, "--ratio", 0.1), "Regularisation path"), (("fit",), "Certificate")],
)
def test_what_json_prints(command: tuple[object, ...], section: str, table: Path) -> None:
    out = ("--out", table.with_name("m.safetensors")) if command[0] == "fit" else ()
    text = run(command[0], table, "--target", "level", "--json", *command[1:], *out, *FAST).out
    result, page = table.with_name("result.json"), table.with_name("page.html")
    result.write_text(text)
    code, said, err = run("report", result, "--out", page)
    assert (code, err) == (0, "")
    assert section in said


def test_a_certificate_of_a_foreign_network(table: Path) -> None:
    small = table.with_name("small.csv")
    pd.read_csv(table)[["a", "b", "level"]].to_csv(small, index=False)
    model, result, page = (table.with_name(name) for name in ("m.safetensors", "certify.json", "page.html"))
    assert run("fit", small, "--target", "level", "--out", model, "--beta", "auto", "--tol", 1e-2).code == 0
    result.write_text(run("certify", model, small, "--target", "level", "--json", "--tol", 1e-2).out)
    assert run("report", result, "--out", page, "--quiet") == (0, "", "")
    assert "No two-layer ReLU network" in page.read_text(encoding="utf-8")


def test_refusals_come_before_any_file(model: Path, table: Path) -> None:
    page, other = table.with_name("page.html"), table.with_name("other.json")
    other.write_text("{")
    strange = table.with_name("strange.csv")
    pd.read_csv(table).assign(label="maybe").to_csv(strange, index=False)
    before = sorted(table.parent.iterdir())
    assert refused("must end in .html", "report", model, "--out", table.with_name("page.pdf"))
    assert refused("does not exist", "report", model, "--out", table.parent / "no" / "page.html")
    assert refused("no such file", "report", table.with_name("nothing"), "--out", page)
    assert refused("go together", "report", model, "--data", table, "--out", page)
    assert refused("no column 'x'", "report", model, "--data", table, "--target", "x", "--out", page)
    assert refused("does not know", "report", model, "--data", strange, "--target", "label", "--out", page)
    assert refused("--data is for model files", "report", other, "--data", table, "--target", "label", "--out", page)
    assert refused("is not JSON", "report", other, "--out", page)
    assert refused("its suffix is '.csv'", "report", table, "--out", page)
    assert sorted(table.parent.iterdir()) == before
