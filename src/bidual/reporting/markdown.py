"""The little of Markdown that results are written in: paragraphs, pipe tables, **bold** and `code`."""

import re

from bidual.reporting.elements import Html, joined, paragraph, table

_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_MARK = "\x00"  # stands for an escaped bar; control characters never reach the page


def to_html(text: str) -> Html:
    """Blocks that blank lines separate, each a table or a paragraph."""
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip())
    return joined(_block(block.strip()) for block in blocks if block.strip())


def _block(block: str) -> Html:
    lines = [line.strip() for line in block.split("\n")]
    if len(lines) < 2 or "|" not in lines[0] or not _RULE.fullmatch(lines[1]):
        return paragraph(" ".join(lines))
    headers = _cells(lines[0])
    rows = [_fitted(_cells(line), len(headers)) for line in lines[2:]]
    return table(headers, rows, "")


def _cells(line: str) -> list[str]:
    bare = line.replace("\\|", _MARK).removeprefix("|").removesuffix("|")
    return [cell.strip().replace(_MARK, "|") for cell in bare.split("|")]


def _fitted(cells: list[str], count: int) -> list[str]:
    """Exactly as many cells as there are headers."""
    return [*cells[:count], *[""] * (count - len(cells))]
