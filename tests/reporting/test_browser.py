"""Pages in a real browser: they load, sort, fit the screen, and can be read by day and by night."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bidual
from helpers.report_tools import HOSTILE, LABELS, X, write_reproduction

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)"
)
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
PAGES = ("fit", "certified", "path", "reproduction", "reproductions")

# the smallest contrast between a text and what is behind it, over all texts that are shown
CONTRAST = """
const channels = colour => { const c = colour.match(/[\\d.]+/g).map(Number); return c.length > 3 ? c : [...c, 1]; };
const light = ([r, g, b]) => {
  const f = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
};
const ground = element => {
  for (; element; element = element.parentElement) {
    const c = channels(getComputedStyle(element).backgroundColor);
    if (c[3] === 1) return c;
  }
  return [255, 255, 255, 1];
};
let worst = [99, ""];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility() || element.tagName === "SCRIPT") continue;
  const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 100)];
}
return worst;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    gated: dict[str, Any] = {"activation": "gated_relu", "n_gates": 8, "tol": 1e-2}
    model = bidual.ConvexMLPClassifier(**gated).fit(X, LABELS)
    bidual.report(model, X, LABELS, title=HOSTILE).save(folder / "fit.html")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    bidual.report(bidual.certify(module, X, X[:, 0], 0.5, tol=1e-2)).save(folder / "certified.html")
    path = bidual.regularization_path(bidual.ConvexMLPClassifier(**gated), X, LABELS, n_betas=5, ratio=0.1)
    bidual.report(path).save(folder / "path.html")
    write_reproduction(folder / "many" / "a", "svg", title=HOSTILE)
    write_reproduction(folder / "many" / "b", row="R10", title="a" * 300, seconds="nan")
    write_reproduction(folder / "many" / "c", row="R2", seconds=3)
    bidual.report(folder / "many" / "a").save(folder / "reproduction.html")
    bidual.report(folder / "many").save(folder / "reproductions.html")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


def show(browser: Any, page: Path, width: int = 1280, theme: str = "light") -> None:
    """Open a page on a screen of this width, for somebody who prefers this theme."""
    feature = {"name": "prefers-color-scheme", "value": theme}
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(page.as_uri())


def column(browser: Any, table: int, place: int) -> list[str]:
    """The texts of a column, from top to bottom."""
    rows = f"document.querySelectorAll('table.sortable')[{table}].tBodies[0].rows"
    return browser.execute_script(f"return [...{rows}].map(row => row.cells[{place}].textContent)")


def click(browser: Any, table: int, place: int) -> str:
    """Click a heading; its new order."""
    header = f"document.querySelectorAll('table.sortable')[{table}].tHead.rows[0].cells[{place}]"
    browser.execute_script(f"{header}.querySelector('button').click()")
    return browser.execute_script(f"return {header}.getAttribute('aria-sort')")


@pytest.mark.parametrize("name", PAGES)
def test_loads_without_errors_and_without_network(browser: Any, pages: Path, name: str) -> None:
    show(browser, pages / f"{name}.html")
    widths = browser.execute_script("return [...document.images].map(image => [image.complete, image.naturalWidth])")
    assert widths
    assert all(complete and width > 0 for complete, width in widths)
    assert browser.get_log("browser") == []
    asked = [
        entry["message"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert asked
    assert all('"url":"file:' in message or '"url":"data:' in message for message in asked)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_fits_the_screen(browser: Any, pages: Path, name: str, width: int) -> None:
    show(browser, pages / f"{name}.html", width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    shown = "[...document.images].filter(image => image.checkVisibility())"
    sizes = browser.execute_script(f"return {shown}.map(image => image.getBoundingClientRect().width)")
    assert all(20 <= size <= width for size in sizes)
    assert len(sizes) >= 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_can_be_read(browser: Any, pages: Path, name: str, theme: str) -> None:
    show(browser, pages / f"{name}.html", theme=theme)
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    ratio, where = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, where
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 300) is (theme == "dark")


def test_the_button_changes_the_theme(browser: Any, pages: Path) -> None:
    show(browser, pages / "path.html", theme="dark")
    shown = "return [...document.images].filter(image => image.checkVisibility()).map(image => image.className)"
    assert set(browser.execute_script(shown)) == {"in-dark"}
    browser.find_element("id", "theme").click()
    assert set(browser.execute_script(shown)) == {"in-light"}
    assert browser.execute_script(CONTRAST)[0] >= 4.5
    browser.find_element("id", "theme").click()
    assert set(browser.execute_script(shown)) == {"in-dark"}


def test_numbers_sort_by_value(browser: Any, pages: Path) -> None:
    show(browser, pages / "reproduction.html")
    assert click(browser, 0, 1) == "ascending"
    assert column(browser, 0, 1) == ["1e-3", "0.2", "12"]
    assert click(browser, 0, 1) == "descending"
    assert column(browser, 0, 1) == ["12", "0.2", "1e-3"]


def test_texts_sort_both_ways(browser: Any, pages: Path) -> None:
    show(browser, pages / "reproduction.html")
    assert click(browser, 0, 0) == "ascending"
    assert column(browser, 0, 0) == ["a", "b", "c"]
    assert click(browser, 0, 0) == "descending"
    assert column(browser, 0, 0) == ["c", "b", "a"]


def test_rows_count_and_missing_numbers_are_last(browser: Any, pages: Path) -> None:
    show(browser, pages / "reproductions.html")
    click(browser, 0, 0)
    assert column(browser, 0, 0) == ["R2", "R4", "R10"]
    for _ in range(2):
        click(browser, 0, 5)
        assert column(browser, 0, 5)[-1] == "–"


def test_values_beyond_the_digits_shown(browser: Any, pages: Path) -> None:
    show(browser, pages / "fit.html")
    count = browser.execute_script("return document.querySelectorAll('table.sortable').length")
    click(browser, count - 1, 1)
    norms = np.array(column(browser, count - 1, 1), dtype=float)
    assert len(norms) > 3
    assert (np.diff(norms) >= 0).all()


def test_keys_sort_too(browser: Any, pages: Path) -> None:
    show(browser, pages / "reproduction.html")
    button = browser.find_element("css selector", "table.sortable th button")
    button.send_keys("\ue007")  # enter
    assert column(browser, 0, 0) == ["a", "b", "c"]
    button.send_keys(" ")
    assert column(browser, 0, 0) == ["c", "b", "a"]


def test_foreign_scripts_would_not_run(browser: Any, pages: Path) -> None:
    show(browser, pages / "fit.html")
    assert browser.title == HOSTILE
    browser.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')")
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran=1'; document.body.append(s)"
    )
    assert browser.execute_script("return window.ran ?? 0") == 0
