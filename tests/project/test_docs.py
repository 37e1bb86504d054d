"""Documentation: pages refer to what exists, the API reference is whole, and the site is built without a warning."""

import re
from importlib import import_module
from importlib.util import find_spec

import pytest

import bidual
from helpers.places import ROOT

PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`([A-Za-z_.][\w./-]*\.(?:py|toml))(?:::\w+)?`")
FILES = {
    path.name
    for folder in ("src", "tests", "benchmarks", "examples", ".ci", "docs")
    for path in (ROOT / folder).rglob("*.*")
}
DOTTED = re.compile(r"\b(bidual(?:\.[A-Za-z_]\w*)+)")
LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//")


def heading_anchors(text: str) -> set[str]:
    """What headings are called in links: lower case, words joined by hyphens."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_images_exist(page):
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} refers to {target}, which is not there"
        if anchor and file.suffix == ".md":
            assert anchor in heading_anchors(file.read_text(encoding="utf-8")), f"{page.name}: no heading {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=lambda page: page.stem)
def test_files_and_modules_that_pages_name_exist(page):
    """In backticks: paths from the root or from the package, file names, and dotted names of the package."""
    text = page.read_text(encoding="utf-8")
    for name in set(FILE.findall(text)):
        assert any((ROOT / folder / name).exists() for folder in ("", "src/bidual", "tests")) or (
            "/" not in name and name in FILES
        ), f"{page.name} names {name}, which is not there"
    for name in set(DOTTED.findall(text)):
        assert _exists(name), f"{page.name} names {name}, which is not there"


def _exists(name: str) -> bool:
    """Whether a dotted name can be imported: a module, or an attribute path of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_tutorials_are_in_the_gallery():
    """Every script of the gallery is shown with its figure, and every figure of the gallery is shown."""
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    figures = {path.name for path in (ROOT / "docs" / "images").glob("gallery_*.png")}
    scripts = re.findall(r"^`python examples/(\w+)\.py`$", text, re.MULTILINE)
    assert len(scripts) == 6
    assert {f"gallery_{name}.png" for name in scripts} == figures == set(re.findall(r"images/(gallery_\w+\.png)", text))


def test_public_names_are_in_the_api_reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_mkdocs"))
    from api import pages

    shown = re.findall(r"^::: (\S+)$", "\n".join(pages().values()), re.MULTILINE)
    assert {f"bidual.{name}" for name in bidual.__all__} <= set(shown)
    assert len(shown) == len(set(shown))


def test_formulas_are_shown_as_they_are(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_mkdocs"))
    from api import escaped

    assert escaped("||Z_i||_* and <v, y>, ``a_b * c`` and `d_e`") == (
        r"||Z\_i||\_\* and &lt;v, y>, ``a_b * c`` and `d_e`"
    )


def test_the_site(tmp_path, monkeypatch):
    """Built without a warning; one test, because processes that share the tests would build it once each."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs and mkdocstrings are not installed; `make docs` installs them")
    from click.testing import CliRunner
    from mkdocs.__main__ import cli

    monkeypatch.chdir(ROOT)  # in this process, which has imported what the reference shows
    done = CliRunner().invoke(cli, ["build", "--strict", "--site-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Building documentation" in done.output
    assert "WARNING" not in done.output
    assert_every_page_and_name(tmp_path)
    assert_nothing_from_elsewhere(tmp_path)
    assert_no_markup(tmp_path)


def assert_every_page_and_name(site):
    for page in PAGES:
        assert (site / f"{'index' if page.stem == 'README' else page.stem}.html").is_file(), page.name
    reference = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    for name in bidual.__all__:
        assert f'id="bidual.{name}"' in reference, name


def assert_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert not LOADS.search(path.read_text(encoding="utf-8")), path
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path


def assert_no_markup(site):
    """Roles of other tools and escapes within code would be seen as they are."""
    for path in (site / "api").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r":(?:class|func|meth|mod|attr|data):", text), path
        assert not re.search(r"<code>[^<]*\\[_*]", text), path
