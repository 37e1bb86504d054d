import json
import math
from pathlib import Path
from typing import Any

import pytest

import bidual
from helpers.report_tools import HOSTILE, MARKED, assert_self_contained, result, text_of, write_reproduction

ROW = {"beta": 0.1, "fraction": 0.5, "loss": 1.5, "neurons": 3, "relative_gap": 1e-5, "seconds": 0.1}
PATH = {
    "task": "regression",
    "beta_max": 0.2,
    "seconds": 1.0,
    "path": [ROW, ROW | {"beta": 0.05, "relative_gap": None}],
}
JUDGED = {
    "task": "regression",
    "loss": "squared",
    "rows": 10,
    "features": 2,
    "neurons": 3,
    "outputs": 1,
    "beta": 0.1,
    "objective": 2.0,
    "lower_bound": 1.0,
    "relative_gap": 0.5,
    "status": HOSTILE,
    "better_objective": 1.1,
    "constant_objective": 4.0,
    "kind": HOSTILE,
    "how": HOSTILE,
    "seconds": 0.1,
    "out": None,
}
FIT = {
    "task": "classification",
    "rows": 40,
    "features": 3,
    "beta": 0.1,
    "beta_max": 2.0,
    "primal": 1.0,
    "dual": 0.9,
    "relative_gap": 0.1,
    "scope": "BLOCKS",
    "neurons": 7,
    "solver": HOSTILE,
    "train_accuracy": 0.9,
    "seconds": 1.0,
    "out": "model.safetensors",
    "cv": {"betas": [1.0, 0.1], "score": "loss", "values": [[1.0, 2.0], [0.5, 0.6]]},
}


def page_of(value: Any, folder: Path) -> bidual.Report:
    (folder / "x.json").write_text(json.dumps(value))
    return bidual.report(folder / "x.json")


@pytest.mark.parametrize(
    ("value", "sections"),
    [
        (PATH, ("Summary", "Regularisation path", "Certificates", "Networks")),
        (JUDGED, ("Summary", "Certificate", "Problem")),
        (FIT, ("Summary", "Certificate", "Cross-validation")),
        (result(), ("Summary", "Claims", "Results", "How it was run")),
    ],
)
def test_every_kind(value: Any, sections: tuple[str, ...], tmp_path: Path) -> None:
    page = page_of(value, tmp_path)
    assert page.sections == sections
    assert_self_contained(page.html)


@pytest.mark.parametrize("base", [PATH["path"][0], JUDGED, FIT, result()])  # type: ignore[index]
@pytest.mark.parametrize("wrong", [HOSTILE, [], pytest.param(-1, marks=pytest.mark.slow), None, 10**400, {"a": {}}])
def test_any_field_may_be_wrong(base: dict[str, Any], wrong: Any, tmp_path: Path) -> None:
    """Every field in turn is replaced: a page without foreign markup, or one sentence."""
    for name in base:
        broken = base | {name: wrong}
        html, said = _page_or_sentence(PATH | {"path": [broken]} if base is ROW else broken, tmp_path)
        if html:
            assert_self_contained(html)
        else:
            assert "x.json" in said
            assert len(said) < 600


def _page_or_sentence(value: Any, folder: Path) -> tuple[str, str]:
    try:
        return page_of(value, folder).html, ""
    except ValueError as error:
        return "", str(error)


@pytest.mark.parametrize(
    "value",
    [[], "x", {}, None, {"path": []}, {"path": {}}, FIT | {"cv": {"betas": [1], "score": "loss", "values": [[]]}}],
)
def test_unknown_shapes(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x\.json"):
        page_of(value, tmp_path)


def test_claims_and_tables(tmp_path: Path) -> None:
    page = bidual.report(write_reproduction(tmp_path / "one"))
    text = text_of(page.html)
    assert page.title == "Descent against the optimum"
    assert "1 of 2 claims hold" in text
    assert '<span class="badge bad">does not hold</span>' in text
    assert "One stalls." in text
    assert text.count('<table class="sortable">') == 1
    assert "Figure" in page.sections
    assert "[0.1, &#34;inf&#34;]" in text


def test_a_hostile_figure_is_only_an_image(tmp_path: Path) -> None:
    page = bidual.report(write_reproduction(tmp_path / "one", "svg"))
    assert "data:image/svg+xml;base64," in page.html
    assert "alert" not in page.html
    (tmp_path / "one" / "figure.svg").write_text("<html>")
    with pytest.raises(ValueError, match="not a SVG picture"):
        bidual.report(tmp_path / "one")


def test_how_it_was_run(tmp_path: Path) -> None:
    """All commits of a resumed run, and the fingerprint, which older files lack."""
    html = page_of(result(), tmp_path).html
    assert "<dd>4e08305, e821a7b</dd>" in html
    assert "<dd>0123456789abcdef</dd>" in html
    older = {name: value for name, value in result(commit=None).items() if name != "fingerprint"}
    assert "fingerprint" not in page_of(older, tmp_path).html


def test_texts_of_files_are_shown_as_they_are(tmp_path: Path) -> None:
    """Where a file has a text, its asterisks are no bold; only the tables of a reproduction are Markdown."""
    claim = {"paper": MARKED, "ours": MARKED, "holds": True, "why": MARKED}
    texts = dict.fromkeys(("row", "name", "title", "source", "scale", "started", "version", "commit"), MARKED)
    whole = result(**texts, claims=[claim], machine={MARKED: MARKED}, configuration=MARKED, table="**bold**")
    for value in (
        whole,
        FIT | {"task": MARKED, "solver": MARKED},
        JUDGED | {"status": MARKED, "task": MARKED, "loss": MARKED},
    ):
        html = page_of(value, tmp_path).html
        assert "**x** &lt;b&gt;" in html
        assert "<strong>x" not in html
    assert "<strong>bold</strong>" in page_of(whole, tmp_path).html
    for name in ("one", "two"):
        write_reproduction(tmp_path / "both" / name, **texts)
    assert "<strong>x" not in bidual.report(tmp_path / "both").html


def test_scales_of_one_folder(tmp_path: Path) -> None:
    write_reproduction(tmp_path / "out" / "cpu" / "one", scale="cpu")
    write_reproduction(tmp_path / "out" / "smoke" / "one")
    page = bidual.report(tmp_path / "out")
    assert len(page.sections) == 3
    assert "2 of 4 claims hold" in page.html


def test_a_folder_of_folders_has_an_index(tmp_path: Path) -> None:
    for row, title in (("R10", "Ten"), ("R2", HOSTILE), ("R4", "Four")):
        write_reproduction(tmp_path / row, row=row, title=title, seconds="nan")
    page = bidual.report(tmp_path)
    assert [section.split()[0] for section in page.sections] == ["Summary", "R2", "R4", "R10"]
    assert 'href="#reproduction-3"' in page.html
    assert 'id="reproduction-3"' in page.html
    assert "3 of 6 claims hold" in page.html
    assert_self_contained(page.html)


def test_missing_and_foreign(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, content, message in (
        ("x.txt", "x", "its suffix is '.txt'"),
        ("x.json", json.dumps(result(format=2)), "has format 2"),
        ("x.safetensors", "x", "not a model file"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            bidual.report(tmp_path / name)
    with pytest.raises(ValueError, match=r"holds no result\.json"):
        bidual.report(tmp_path / "empty")


def test_the_verdict_comes_from_the_numbers(tmp_path: Path) -> None:
    """What a file says in words is not repeated, and numbers that contradict each other are not drawn."""
    older = {name: value for name, value in JUDGED.items() if name not in ("constant_objective", "kind", "how")}
    html = page_of(older | {"verdict": "All is well."}, tmp_path).html
    assert "All is well." not in html
    assert "Your network can be improved by 44.9 %" in html
    assert "no network is below 1." in html
    for wrong in ({"lower_bound": 1.2}, {"objective": "inf"}, {"better_objective": 3.0}, {"lower_bound": None}):
        assert "<img" not in page_of(JUDGED | wrong, tmp_path).html


def test_nothing_proved_is_said(tmp_path: Path) -> None:
    assert "nothing is proved" in page_of(PATH, tmp_path).html
    assert "nothing is proved" in page_of(JUDGED | {"relative_gap": math.inf}, tmp_path).html
