"""One HTML file that needs nothing else (no network, no other file, no script but its own), and numbers in words."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bidual.runtime.files import check_target, write_atomically

_SUFFIXES = (".html", ".htm")
_LONGEST = 2000  # characters of a setting


@dataclass(frozen=True)
class Report:
    """A page.

    Attributes:
        title: of the page.
        html: the whole file.
        sections: the headings, in their order.
    """

    title: str
    html: str
    sections: tuple[str, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file that ends in .html; a failure leaves an older file unchanged."""
        write_atomically(check_page(path), self.html.encode())


def check_page(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> Path:
    """The path, if a page can be written there."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"a report must end in {' or '.join(_SUFFIXES)}, got {str(path)!r}.")
    return check_target(path, *inputs)


def page(template: str, title: str, lead: str, **context: Any) -> Report:
    """The page of a template, with a line under its title and links to its sections."""
    from bidual.reporting.rendering import render  # needs the packages of the extra

    return Report(title, *render(template, title, lead, context))


def number(value: Any, digits: int = 4) -> Any:
    """A number for a reader: few digits, and a dash for NaN; texts as they are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, int):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as per cent, with three digits."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else number(share)


def objective(value: float) -> str:
    """An objective or a bound of one, with digits enough to tell the two apart."""
    return number(float(value), 9)


def gap(value: float) -> str:
    """A relative gap as a short text."""
    return f"{value:.1e}" if value < 1e-2 else percent(value)


def reach(value: float) -> str:
    """How good a point with this relative gap is."""
    if not math.isfinite(value):
        return "nothing is proved about it"
    if value == 0:
        return "it is optimal, up to rounding"
    return f"no network in scope improves on it by more than {percent(value)}"


def short(value: Any) -> str:
    """A JSON value as a text that is not too long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
