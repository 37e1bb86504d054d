"""Hooks of mkdocs: pages for the API, and the files outside ``docs`` that pages refer to."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from api import ROOMS
from api import pages as api_pages

ROOT = Path(__file__).parents[2]
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: API pages by room, and last all pages that mkdocs.yml does not name."""
    named = set(_uris(config.nav))
    rooms = [{"Overview": "api/index.md"}, *({room.title: f"api/{room.file}.md"} for room in ROOMS)]
    nav = [{"API": rooms} if entry == {"API": "api/index.md"} else entry for entry in config.nav or []]
    rest = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    config.nav = [*nav, *([{"More": list(rest)}] if rest else [])]
    return config


def _uris(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _uris(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API pages, the pages beside ``docs``, and the images outside ``docs``."""
    for uri, text in api_pages().items():
        files.append(File.generated(config, uri, content=text))
    for source, uri in BESIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(outside_images()):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site; files that have no page keep their name only."""
    beside = page.file.src_uri in BESIDE.values()
    folder = PurePosixPath() if beside else PurePosixPath("docs") / PurePosixPath(page.file.src_uri).parent

    def replace(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match.group()
        uri = site_uri(resolve(folder, target))
        if uri is None or files.get_file_from_path(uri) is None:
            # mkdocs warns of a broken link; a file of the repository that the site does not hold is no such thing
            return text if not mark and (ROOT / resolve(folder, target)).exists() else match.group()
        here = PurePosixPath(page.file.src_uri).parent
        up = "../" * len(here.parts)
        return f"{mark}[{text}]({up}{uri}{anchor or ''})"

    return LINK.sub(replace, markdown)


def resolve(folder: PurePosixPath, target: str) -> str:
    """A link as a path from the root of the repository."""
    parts: list[str] = list(folder.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def site_uri(path: str) -> str | None:
    """Where the site has a file of the repository."""
    if path in BESIDE:
        return BESIDE[path]
    return path.removeprefix("docs/")


def outside_images() -> set[str]:
    """Images that pages show and that are not below ``docs``."""
    found = set()
    for page in (ROOT / "docs").glob("*.md"):
        for mark, _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            path = resolve(PurePosixPath("docs"), target)
            if mark and "://" not in target and not path.startswith("docs/") and (ROOT / path).is_file():
                found.add(path)
    return found
