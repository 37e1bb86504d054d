"""One HTML file that needs nothing else (no network, no other file, no script but its own)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bidual.runtime.files import check_target, write_atomically

_SUFFIXES = (".html", ".htm")


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
