"""Draws docs/images/rooms.svg, the rooms of the package: `python docs/_mkdocs/rooms.py`.

The order is that of the import contract in pyproject.toml; a test compares the picture with it.
"""

from pathlib import Path
from xml.sax.saxutils import escape

FILE = Path(__file__).parents[1] / "images" / "rooms.svg"
BANDS = (  # lowest first; within a band a room may import from those to its left
    ("tools", "#e8edf3", {
        "types": "array aliases",
        "numerics": "arithmetic with error bounds",
        "runtime": "files, threads, jobs, ranks",
    }),
    ("parts of a program", "#e3f0e6", {
        "losses": "loss F, data term",
        "gauges": "price Ω, its polar",
        "patterns": "activation patterns",
        "operators": "linear map A",
        "architectures": "families, modules",
        "polar": "steepest neurons",
    }),
    ("optimisation", "#fdf0d8", {
        "problems": "program, certificate, solution",
        "solvers": "driver, plan, algorithms",
        "training": "which neurons: relu, parallel, …",
    }),
    ("use", "#f6e4e4", {
        "io": "tables, networks",
        "estimators": "fit, certify, save",
        "torch": "finish a module",
        "distributed": "fits over ranks",
        "reporting": "HTML pages",
        "testing": "contracts",
        "papers": "experiments",
        "cli": "commands",
    }),
)  # fmt: skip
WIDTH, MARGIN, HEAD, HEIGHT, GAP = 960, 20, 26, 62, 8


def rooms() -> list[str]:
    """All rooms, lowest first."""
    return [room for _, _, band in BANDS for room in band]


def picture() -> str:
    """The picture as SVG: one band above the other, the lowest at the bottom."""
    tall = HEAD + HEIGHT + 2 * GAP
    height = len(BANDS) * tall + 2 * MARGIN + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" role="img">',
        "<title>The rooms of the package: a room imports only from rooms below it, or to its left.</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (title, colour, band) in enumerate(reversed(BANDS)):
        parts += _band(MARGIN + number * tall, title, colour, band)
    words = "A room imports only from rooms in lower bands, and from rooms to its left in its own band."
    parts.append(f'<text x="{MARGIN}" y="{height - 14}" font-size="13" fill="#333333">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _band(top: int, title: str, colour: str, band: dict[str, str]) -> list[str]:
    inner = WIDTH - 2 * MARGIN
    width = (inner - GAP) / len(band) - GAP
    parts = [
        f'<rect x="{MARGIN}" y="{top}" width="{inner}" height="{HEAD + HEIGHT + GAP}" rx="6" fill="{colour}"/>',
        f'<text x="{MARGIN + 10}" y="{top + 18}" font-size="12" fill="#555555">{escape(title)}</text>',
    ]
    for number, (room, words) in enumerate(band.items()):
        left = MARGIN + GAP + number * (width + GAP)
        parts += [
            f'<rect x="{left:.1f}" y="{top + HEAD}" width="{width:.1f}" height="{HEIGHT}" rx="4" fill="#ffffff" '
            'stroke="#666666"/>',
            _centred(left + width / 2, top + HEAD + 27, room, 'font-size="15" font-weight="bold"'),
            _centred(left + width / 2, top + HEAD + 47, words, 'font-size="11.5"'),
        ]
    return parts


def _centred(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" {style} text-anchor="middle" fill="#222222">{escape(words)}</text>'


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
