"""What the tests of reports share: samples, a reproduction, and how to read a page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

rng = np.random.default_rng(0)
X = rng.standard_normal((36, 2))
LABELS = np.array(["<b>no</b>", "yes & $x^$", "so"])[np.arange(36) % 3]
NUMBERS = X[:, 0] - np.abs(X[:, 1])
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"><script>alert(1)</script></svg>'
MARKED = "**x** <b>"  # a name that is Markdown and HTML
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """All tags of a page with their attributes."""
    reader = _Reader()
    reader.feed(html)
    return reader.tags


def assert_self_contained(html: str) -> None:
    """One script and one style; no address but anchors and data; no handlers and no inline style."""
    found = tags(html)
    assert sum(tag == "script" for tag, _ in found) == 1
    assert sum(tag == "style" for tag, _ in found) == 1
    for tag, attributes in found:
        assert tag not in ("iframe", "object", "embed", "form", "base", "svg")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "style"
            if name in ("src", "href"):
                assert re.match(r"#|data:", value or "")
    assert all(attributes["alt"] for tag, attributes in found if tag == "img")


def text_of(html: str) -> str:
    """The page without its style, script and pictures."""
    bare = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"base64,[A-Za-z0-9+/=]+", "", bare)


def result(**changes: Any) -> dict[str, Any]:
    """A result of a reproduction."""
    return {
        "format": 1,
        "kind": "bidual reproduction",
        "row": "R4",
        "name": "cp_figure_1",
        "title": "Descent against the optimum",
        "source": "CP Fig. 1",
        "scale": "smoke",
        "configuration": {"n": 25, "betas": [0.1, "inf"]},
        "seed": 0,
        "seconds": 12.3,
        "started": "2026-11-17T01:02:03+00:00",
        "machine": {"processor": "some", "cores": 2},
        "version": "0.1.0",
        "commit": "4e08305, e821a7b",
        "fingerprint": "0123456789abcdef",
        "claims": [
            {"paper": "It is reached.", "ours": "It is.", "holds": True, "why": ""},
            {"paper": "Always.", "ours": "4 of 5.", "holds": False, "why": "One stalls."},
        ],
        "table": "Some words.\n\n| method | gap |\n|---|---:|\n| b | 1e-3 |\n| a | 0.2 |\n| c | 12 |",
        "data": {},
    } | changes


def write_reproduction(folder: Path, picture: str = "png", **changes: Any) -> Path:
    """A folder with a result and a figure."""
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result(**changes)))
    if picture == "png":
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([0, 1])
        figure.savefig(folder / "figure.png")
    elif picture == "svg":
        (folder / "figure.svg").write_bytes(SVG)
    return folder
