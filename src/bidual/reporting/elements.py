"""Pieces of a page. Every text is escaped on its way in; only ``Html`` passes as it is.

Our own prose may hold `code` and **bold**. What comes from files and data goes through ``escaped`` first, so that its
backticks and asterisks are shown and not obeyed.
"""

import base64
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")
_NUMBER = re.compile(
    r"[<>~≈]?\s*[+−-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?(?![\w.-])|[+−-]?inf(inity)?$|nan$|[-–]?$", re.IGNORECASE
)
_MEDIA = {b"\x89PNG\r\n\x1a\n": "image/png"}
_SHORT = 24  # characters that need no wide column


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Any text as it should be read, never as markup."""
    if isinstance(value, Html):
        return value
    text = str(value).encode("utf-8", "replace").decode()  # lone surrogates cannot be written
    return Html(html.escape(_CONTROL.sub("", text)))


def joined(parts: Iterable[str]) -> Html:
    """Pieces one after another."""
    return Html("\n".join(escaped(part) for part in parts))


def inline(*texts: str) -> Html:
    """Texts one after another, with `code` and **bold**; all else is escaped, and ``Html`` passes as it is."""
    return Html("".join(text if isinstance(text, Html) else _marked(text) for text in texts))


def _marked(text: str) -> str:
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        tag, inside = ("code", found[1]) if found[1] else ("strong", found[2])
        parts += [escaped(text[end : found.start()]), f"<{tag}>{escaped(inside)}</{tag}>"]
        end = found.end()
    return "".join([*parts, escaped(text[end:])])


def paragraph(text: str, kind: str = "") -> Html:
    """A paragraph of text with `code` and **bold**."""
    mark = f' class="{kind}"' if kind else ""
    return Html(f"<p{mark}>{inline(text)}</p>")


def number(value: float, digits: int = 4) -> str:
    """A number for a reader: few digits, and a dash where there is none."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as per cent, with three digits."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else number(share)


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> Html:
    """A table that sorts by any column. Numbers are sorted by value, whatever digits are shown."""
    numeric = [all(_numeric(row[k]) for row in rows) for k in range(len(headers))]
    head = "".join(
        f'<th scope="col" aria-sort="none"{_align(right)}><button type="button">{inline(name)}</button></th>'
        for name, right in zip(headers, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in rows)
    label, title = escaped(caption or "Table"), f"<caption>{inline(caption)}</caption>" if caption else ""
    return Html(
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table class="sortable">'
        f"{title}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _numeric(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_NUMBER.match(value.strip()))
    return isinstance(value, (int, float))


def _align(right: bool) -> str:
    return ' class="n"' if right else ""


def _cell(value: Any, right: bool) -> str:
    if isinstance(value, str):
        mark = _align(right) if right or len(value) <= _SHORT else ' class="long"'
        return f"<td{mark}>{inline(value)}</td>"
    return f'<td{_align(right)} data-value="{float(value)!r}">{escaped(number(value))}</td>'


def facts(pairs: Mapping[str, Any]) -> Html:
    """Names and values."""
    lines = [f"<div><dt>{inline(name)}</dt><dd>{_fact(value)}</dd></div>" for name, value in pairs.items()]
    return Html(f'<dl class="facts">{"".join(lines)}</dl>')


def tiles(pairs: Mapping[str, Any]) -> Html:
    """The few numbers that matter most, large."""
    lines = [f"<div><dt>{inline(name)}</dt><dd>{_fact(value)}</dd></div>" for name, value in pairs.items()]
    return Html(f'<dl class="tiles">{"".join(lines)}</dl>')


def _fact(value: Any) -> Html:
    return inline(value) if isinstance(value, str) else escaped(_plain(value))


def _plain(value: Any) -> Any:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def details(summary: str, body: Html) -> Html:
    """Something to unfold."""
    return Html(f"<details><summary>{inline(summary)}</summary>{body}</details>")


def badge(text: str, good: bool) -> Html:
    """A verdict."""
    return Html(f'<span class="badge {"good" if good else "bad"}">{escaped(text)}</span>')


def data_url(data: bytes) -> str:
    """A PNG or SVG as an address that needs no file; as an image, an SVG can run nothing."""
    kind = next((kind for start, kind in _MEDIA.items() if data.startswith(start)), "image/svg+xml")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def image(data: bytes, alt: str, kind: str = "") -> Html:
    """One picture with the words for those who cannot see it."""
    mark = f' class="{kind}"' if kind else ""
    return Html(f'<img{mark} src="{data_url(data)}" alt="{escaped(alt)}">')


def figure(pictures: Html, caption: str, kind: str = "") -> Html:
    """A picture with its caption."""
    mark, words = (f' class="{kind}"' if kind else ""), f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
    return Html(f"<figure{mark}>{pictures}{words}</figure>")
