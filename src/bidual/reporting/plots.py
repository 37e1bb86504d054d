"""Tools for figures: bytes drawn without a display, and pictures for light pages and for dark ones."""

import base64
import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bidual.runtime.extras import extra, need
from bidual.runtime.files import check_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".pdf", ".svg")
COLOURS = ("#2f6fb0", "#d9822b", "#3c9d6b", "#b0507a", "#7a6cc0", "#8a7a3c")
GREY = "#555555"
PALE = "#8893a3"  # readable on light and on dark
PNG = b"\x89PNG\r\n\x1a\n"
_CLEAR = {"figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none"}
_INK = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_SHADES = {"in-light": "#2b3442", "in-dark": "#d7dde6"}


def check_figure(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can be written there."""
    need("matplotlib")
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"a figure must end in {', '.join(_SUFFIXES)}, got {str(path)!r}.")
    return check_target(path)


def new_figure(width: float, height: float) -> "Figure":
    with extra("matplotlib"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def figure_bytes(figure: "Figure", suffix: str = ".png") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix[1:].lower(), dpi=150)
    return buffer.getvalue()


@dataclass(frozen=True)
class Drawn:
    """A picture, in one or several shades, and the text for readers who cannot see it."""

    images: dict[str, str]  # addresses that hold the picture itself, by the class that shows them
    alt: str


def both(draw: Callable[[], bytes], alt: str) -> Drawn:
    """The picture on a clear ground with dark ink and with light ink; the page shows the one that fits."""
    import matplotlib

    images = {}
    for kind, ink in _SHADES.items():
        settings: dict[Any, Any] = _CLEAR | dict.fromkeys(_INK, ink) | {"grid.color": PALE}
        with matplotlib.rc_context(settings), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")
            images[kind] = data_url(draw())
    return Drawn(images, alt)


def data_url(data: bytes) -> str:
    """A PNG or SVG as an address that needs no file; as an image, an SVG can run nothing."""
    kind = "image/png" if data.startswith(PNG) else "image/svg+xml"
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def literal(name: object) -> str:
    """A name of a column or class as a text to draw, whatever dollars it holds."""
    text = str(name).replace("$", r"\$")
    return text if len(text) <= 40 else f"{text[:38]}…"


def palette(count: int) -> list[str]:
    """Colours that differ, one per class."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    import matplotlib

    shades = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, count))
    return [matplotlib.colors.to_hex(shade) for shade in shades]


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of ``count`` indices, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
