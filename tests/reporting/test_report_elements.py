import json
import math
from pathlib import Path

import pytest

from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.reporting import Report, check_page
from bidual.reporting.elements import Html, escaped, facts, figure, image, inline, number, paragraph, percent, table
from bidual.reporting.markdown import to_html
from bidual.reporting.page import Section, assemble
from bidual.reporting.shapes import Fields, read_json
from helpers.report_tools import HOSTILE, MARKED, assert_self_contained


def test_text_is_never_markup() -> None:
    assert escaped("<a href='x'>&\x00\ud800") == "&lt;a href=&#x27;x&#x27;&gt;&amp;?"
    assert inline("`<i>` and **<b>**") == "<code>&lt;i&gt;</code> and <strong>&lt;b&gt;</strong>"
    for piece in (
        paragraph(HOSTILE),
        facts({HOSTILE: HOSTILE}),
        table([HOSTILE], [[HOSTILE]], HOSTILE),
        to_html(HOSTILE),
    ):
        assert "<script" not in piece
        assert "<img" not in piece
    assert "<script" not in image(b"", HOSTILE)


def test_html_passes() -> None:
    assert escaped(Html("<b>x</b>")) == "<b>x</b>"
    assert inline("**a** ", Html("<i>**b**</i>"), escaped(" **c**")) == "<strong>a</strong> <i>**b**</i> **c**"


def test_escaped_text_has_no_marks() -> None:
    shown = "**x** &lt;b&gt;"
    text = escaped(MARKED)
    for piece in (paragraph(text), facts({text: text}), table([text], [[text]], text), figure(Html(""), text)):
        assert "<strong>" not in piece
        assert shown in piece


def test_numbers() -> None:
    assert [number(x) for x in (3, 0.123456, 1e-9, math.nan, math.inf)] == ["3", "0.1235", "1e-09", "–", "inf"]
    assert percent(0.00012) == "0.012 %"


def test_cells_keep_their_value() -> None:
    found = table(["x", "name"], [[0.123456789, "a"], [2, "b"]], "caption")
    assert 'data-value="0.123456789">0.1235<' in found
    assert '<th scope="col" aria-sort="none" class="n">' in found
    assert found.count('class="n"') == 3


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
    found = to_html(
        "One\ntwo **three**.\n\n| a | b |\n|:--|--:|\n| x \\| y | 1.5 |\n| only |\n| 1 | 2 | 3 |\n\n# no heading"
    )
    assert "<p>One two <strong>three</strong>.</p>" in found
    assert found.count("<tr>") == 4
    assert "<td>x | y</td>" in found
    assert "<p># no heading</p>" in found


def test_a_page_is_self_contained() -> None:
    page = assemble(
        HOSTILE, HOSTILE, [Section(HOSTILE, paragraph("x")), Section(HOSTILE, paragraph("y")), Section("", Html(""))]
    )
    assert_self_contained(page.html)
    assert page.html.count(" id=") == 4
    assert "default-src 'none'" in page.html


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
    with pytest.raises(ValueError, match="'a' must be a number, got"):
        Fields({"a": value}, "file").number("a")


def test_words_for_numbers() -> None:
    found = Fields({"a": "inf", "b": None, "c": 2}, "file")
    assert (found.number("a"), found.number("c"), math.isnan(found.number("b"))) == (math.inf, 2.0, True)
    with pytest.raises(ValueError, match="lacks 'd'"):
        found.number("d")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000, json.dumps({}).encode("utf-16")]
)
def test_damaged_json(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not JSON"):
        read_json(tmp_path / "x.json")


def test_every_network_has_words() -> None:
    words = {cls.words for cls in NETWORKS.values()}
    assert RebuildableModule.words not in words
    assert len(words) == len(NETWORKS)
