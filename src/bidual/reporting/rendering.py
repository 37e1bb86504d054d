"""Templates to HTML. Jinja escapes every text on its way in; importing this needs ``bidual[report]``."""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from bidual.reporting.words import gap, number, objective, percent, reach, short

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NUMBER = re.compile(
    r"[<>~≈]?\s*[+−-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?(?![\w.-])|[+−-]?inf(inity)?$|nan$|[-–]?$", re.IGNORECASE
)
_MARKDOWN = MarkdownIt("zero", {"html": False}).enable(["table", "emphasis", "backticks"])  # no links, no images


def render(template: str, title: str, lead: str, context: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The whole page and the titles of its sections."""
    contents: dict[str, str] = {}

    def section(title: str, anchor: str = "", *, caller: Callable[[], Markup]) -> Markup:
        slug = re.sub(r"[^a-z0-9]+", "-", (anchor or title).lower()).strip("-")[:60]
        anchor = slug if slug and slug not in contents else f"section-{len(contents) + 1}"
        contents[anchor] = title
        return Markup('<section id="{}"><h2>{}</h2>\n{}</section>').format(anchor, title, caller())

    templates = environment()
    body = Markup(templates.get_template(f"{template}.html.j2").render(context, section=section))
    style, script = (Markup(templates.get_template(name).render()) for name in ("style.css.j2", "script.js.j2"))
    html = templates.get_template("page.html.j2").render(
        policy=_policy(style, script),
        title=title,
        lead=lead,
        style=style,
        script=script,
        contents=contents,
        body=body,
        version=version("bidual"),
    )
    return _CONTROL.sub("", html.encode("utf-8", "replace").decode()), tuple(contents.values())


def _policy(style: str, script: str) -> Markup:
    """What a browser may load: pictures inside the page, and this style and script, known by their hashes."""
    return Markup(
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates with their filters."""
    found = Environment(
        loader=PackageLoader("bidual.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (gap, known, markdown, number, numeric_columns, objective, percent, reach, settings)
    found.filters |= {function.__name__: function for function in filters}
    found.tests["finite"] = math.isfinite
    return found


def numeric_columns(rows: Sequence[Sequence[Any]], count: int) -> list[bool]:
    """Which of the columns hold numbers only; those are aligned to the right."""
    return [all(_numeric(row[k]) for row in rows) for k in range(count)]


def _numeric(value: Any) -> bool:
    return bool(_NUMBER.match(value.strip())) if isinstance(value, str) else isinstance(value, (int, float))


def settings(values: Any) -> dict[str, str]:
    """An object by its names; any other JSON value as one value."""
    named = values if isinstance(values, dict) else {"value": values}
    return {str(name): short(value) for name, value in named.items()}


def known(pairs: dict[str, Any]) -> dict[str, Any]:
    """The pairs that have a value."""
    return {name: value for name, value in pairs.items() if value is not None and value != ""}


def markdown(text: str) -> Markup:
    """Paragraphs and tables that sort, with emphasis and code; the rest of Markdown is shown as it is written."""
    table = environment().get_template("parts.html.j2").module.table  # type: ignore[attr-defined]
    blocks: list[Markup] = []
    rows: list[list[Markup]] | None = None
    for token in _MARKDOWN.parse(text):
        if token.type == "table_open":
            rows = []
        elif token.type == "tr_open" and rows is not None:
            rows.append([])
        elif token.type == "inline":
            inside = Markup(_MARKDOWN.renderer.render([token], _MARKDOWN.options, {}))
            if rows is None:
                blocks.append(Markup("<p>{}</p>").format(inside))
            else:
                rows[-1].append(inside)
        elif token.type == "table_close" and rows is not None:
            blocks.append(table(rows[0], rows[1:]))
            rows = None
    return Markup("\n").join(blocks)
