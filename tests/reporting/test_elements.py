import json
import math
from pathlib import Path
from typing import Any

import pytest
from jinja2 import ChoiceLoader, DictLoader
from markupsafe import Markup
from pydantic import BaseModel

from bidual.reporting import Report, check_page
from bidual.reporting.page import page
from bidual.reporting.plots import Drawn, figure_bytes, new_figure
from bidual.reporting.rendering import environment, markdown
from bidual.reporting.words import gap, number, percent
from bidual.reporting.written import Number
from bidual.runtime.json_text import read_json, validated
from helpers.report_tools import HOSTILE, MARKED, assert_self_contained


class Value(BaseModel):
    a: Number


def parts() -> Any:
    return environment().get_template("parts.html.j2").module


def table(*arguments: Any) -> str:
    return parts().table(*arguments)


def test_text_is_never_markup() -> None:
    drawn = Drawn({"in-light": HOSTILE}, HOSTILE)
    for piece in (
        parts().facts({HOSTILE: HOSTILE}),
        table([HOSTILE], [[HOSTILE]], HOSTILE),
        parts().figure(drawn, HOSTILE),
        parts().badge(HOSTILE, True),
        markdown(HOSTILE),
    ):
        assert isinstance(piece, Markup)
        assert "<script" not in piece
        assert "<img src=x" not in piece


def test_marks_of_foreign_texts_are_shown() -> None:
    for piece in (parts().facts({MARKED: MARKED}), table([MARKED], [[MARKED]], MARKED)):
        assert "<strong>" not in piece
        assert "**x** &lt;b&gt;" in piece


def test_numbers() -> None:
    assert [number(x) for x in (3, 0.123456, 1e-9, math.nan, math.inf)] == ["3", "0.1235", "1e-09", "–", "inf"]
    assert number("0.5") == "0.5"
    assert percent(0.00012) == "0.012 %"
    assert (gap(0.00123), gap(0.5), gap(math.inf)) == ("1.2e-03", "50 %", "inf")


def test_cells_keep_their_value() -> None:
    found = table(["x", "name"], [[0.123456789, "a"], [2, "b" * 30]], "caption")
    assert 'data-value="0.123456789">0.1235<' in found
    assert '<th scope="col" aria-sort="none" class="n">' in found
    assert found.count('class="n"') == 3
    assert found.count('class="long"') == 1


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["information", "Nancy", "infant"], False),
        (["3rd", "2nd"], False),
        (["2026-11-17"], False),
        (["1.2.3"], False),
        (["R4"], False),
        (["inf", "-inf", "nan", "–", ""], True),
        (["1e-3", "<0.5", "1,024", "−2", "12 of 30", "17 s", "5%", ".5"], True),
    ],
)
def test_columns_of_numbers_are_aligned(cells: list[str], right: bool) -> None:
    assert ('class="n"' in table(["x"], [[cell] for cell in cells], "")) is right


def test_markdown_tables_and_paragraphs() -> None:
    found = markdown(
        "One\ntwo **three** `4`.\n\n| a | b |\n|:--|--:|\n| x \\| y | 1.5 |\n| only |\n| 1 | 2 | 3 |\n\n# no heading"
    )
    assert "<p>One\ntwo <strong>three</strong> <code>4</code>.</p>" in found
    assert found.count("<tr>") == 4
    assert "<td>x | y</td>" in found
    assert '<td class="n">1.5</td>' in found
    assert "<p># no heading</p>" in found


def test_markdown_makes_no_links_or_images() -> None:
    found = markdown("[x](http://example.org) ![y](http://example.org/y.png) <b>z</b>")
    assert "<a" not in found
    assert "<img" not in found
    assert "<b>" not in found


def test_a_page_is_self_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for t in titles %}{% call section(t) %}x{% endcall %}{% endfor %}"
    monkeypatch.setattr(
        environment(), "loader", ChoiceLoader([DictLoader({"t.html.j2": template}), environment().loader])
    )
    found = page("t", HOSTILE, HOSTILE, titles=[HOSTILE, HOSTILE, "", "\x00a\ud800"])
    assert_self_contained(found.html)
    assert found.html.count(" id=") == 5
    assert "<h2>a?</h2>" in found.html
    assert "default-src 'none'" in found.html


def test_saving_is_checked(tmp_path: Path) -> None:
    page = Report("t", "<p>ü</p>", ())
    page.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == "<p>ü</p>"
    with pytest.raises(ValueError, match=r"must end in \.html"):
        page.save(tmp_path / "x.pdf")
    with pytest.raises(ValueError, match="also read"):
        check_page(tmp_path / "x.html", tmp_path / "x.html")


@pytest.mark.parametrize("value", [True, [], {}, "x", "1", 10**400])
def test_numbers_are_checked(value: object) -> None:
    with pytest.raises(ValueError, match=r"file: 'a' must be a valid number, got .*; write the file again"):
        validated(Value, {"a": value}, "file")


def test_words_for_numbers() -> None:
    assert [validated(Value, {"a": value}, "file").a for value in ("inf", "-inf", 2)] == [math.inf, -math.inf, 2.0]
    assert math.isnan(validated(Value, {"a": None}, "file").a)
    with pytest.raises(ValueError, match="file lacks 'a'"):
        validated(Value, {}, "file")
    with pytest.raises(ValueError, match="'the value' must be a valid dictionary"):
        validated(Value, [], "file")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000, json.dumps({}).encode("utf-16")]
)
def test_damaged_json(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not JSON"):
        read_json(tmp_path / "x.json")


@pytest.mark.usefixtures("laid_out")
def test_labels_stay_on_the_page() -> None:
    figure = new_figure(3, 2)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.set_ylabel("a label\nof two lines", fontsize=14)
        axes.set_xlabel("below", fontsize=14)
    figure_bytes(figure, ".png")
    for axes in (left, right):
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    first, second = left.get_tightbbox(), right.get_tightbbox()
    assert first is not None
    assert second is not None
    assert first.x1 <= second.x0
