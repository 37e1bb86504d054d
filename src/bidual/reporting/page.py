"""One HTML file that needs nothing else: no network, no other file, no script but its own."""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bidual.reporting.elements import Html, escaped, inline, joined
from bidual.reporting.style import CSS, SCRIPT
from bidual.runtime.files import check_target, write_atomically

_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    body: Html
    anchor: str = ""


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
        """Write the page to a file that ends in .html; a failure leaves an older file as it was."""
        write_atomically(check_page(path), self.html.encode())


def check_page(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> Path:
    """The path, if a page can be written there."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"a report must end in {' or '.join(_SUFFIXES)}, got {str(path)!r}.")
    return check_target(path, *inputs)


def assemble(title: str, lead: str, sections: Sequence[Section]) -> Report:
    """The page with a line under its title, links to its sections, and the sections."""
    named = _anchored(sections)
    links = joined(Html(f'<li><a href="#{s.anchor}">{escaped(s.title)}</a></li>') for s in named)
    body = joined(
        Html(f'<section id="{s.anchor}"><h2>{escaped(s.title)}</h2>\n{escaped(s.body)}</section>') for s in named
    )
    text = _PAGE.format(
        policy=_policy(),
        title=escaped(title),
        css=CSS,
        lead=inline(lead),
        links=links,
        body=body,
        version=escaped(version("bidual")),
        script=SCRIPT,
    )
    return Report(title, text, tuple(section.title for section in sections))


def _anchored(sections: Sequence[Section]) -> list[Section]:
    """The sections with anchors that differ."""
    named, taken = [], set()
    for count, section in enumerate(sections, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", (section.anchor or section.title).lower()).strip("-")[:60]
        anchor = slug if slug and slug not in taken else f"section-{count}"
        taken.add(anchor)
        named.append(Section(section.title, section.body, anchor))
    return named


def _policy() -> str:
    """What a browser may load: pictures inside the page, and this style and script, known by their hashes."""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(CSS)}; script-src {_hash(SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<header><div><h1>{title}</h1><p class="soft">{lead}</p></div>
<button id="theme" type="button" title="Change between light and dark">Light or dark</button></header>
<main>
<nav aria-label="Sections"><ul>{links}</ul></nav>
{body}
</main>
<footer>Written by bidual {version}. This page holds all it shows and loads nothing.</footer>
<script>{script}</script>
</body>
</html>
"""
