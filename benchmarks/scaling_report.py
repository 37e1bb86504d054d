"""Points of a scaling run, the power laws fitted to them, and both as tables and as a figure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from gated_problems import Case

TOL = 1e-4
MEASURES = {"seconds": "CPU seconds to gap 1e-4", "megabytes": "peak memory, MB"}


@dataclass(frozen=True)
class Sweep:
    """One letter grows from ``first`` to a hundred times that, the rest stays as in ``base``."""

    letter: str
    field: str
    base: Case
    first: int

    def cases(self, steps: Sequence[int]) -> list[Case]:
        return [replace(self.base, **{self.field: self.first * step}) for step in steps]

    @property
    def rest(self) -> str:
        sizes = {"n": self.base.n, "d": self.base.d, "P": self.base.patterns, "c": self.base.c}
        return ", ".join(f"{letter}={value}" for letter, value in sizes.items() if letter != self.letter)


@dataclass(frozen=True)
class Point:
    """What a solve took; ``gap`` is None and ``error`` says why if it did not end."""

    letter: str
    size: int
    case: Case
    seconds: float | None = None
    megabytes: float | None = None
    gap: float | None = None
    solver: str = ""
    error: str = ""

    @property
    def reached(self) -> bool:
        return self.gap is not None and self.gap <= TOL


def upper(points: Sequence[Point]) -> list[Point]:
    """Those from the geometric middle of the range on that reached the gap."""
    sizes = [found.size for found in points]
    return [found for found in points if found.reached and found.size**2 >= min(sizes) * max(sizes)]


def fit(points: Sequence[Point], measured: str) -> tuple[float, float] | None:
    """Exponent and factor of the power law; None with fewer than two points."""
    used = upper(points)
    if len(used) < 2:
        return None
    logs = np.log([[found.size, max(getattr(found, measured), 1e-9)] for found in used])
    exponent, constant = np.polyfit(logs[:, 0], logs[:, 1], 1)
    return float(exponent), float(np.exp(constant))


def misfit(points: Sequence[Point], measured: str) -> float:
    """The largest factor between a point and the fitted law: far from 1 where the measured is no power law."""
    law = fit(points, measured)
    if law is None:
        return float("nan")
    ratios = [getattr(found, measured) / (law[1] * found.size ** law[0]) for found in upper(points)]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def table(sweeps: Sequence[Sweep], points: Sequence[Point]) -> Iterator[str]:
    yield "| varied | fixed | size | CPU s | peak MB | gap | solvers |"
    yield "|" + "---|" * 7
    for sweep in sweeps:
        for found in (found for found in points if found.letter == sweep.letter):
            start = f"| {sweep.letter} | {sweep.rest} | {found.size} |"
            if found.gap is None:
                yield f"{start} - | - | - | {found.error} |"
            else:
                yield f"{start} {found.seconds:.3g} | {found.megabytes:.3g} | {found.gap:.1e} | {found.solver} |"


def exponent_table(sweeps: Sequence[Sweep], points: Sequence[Point]) -> Iterator[str]:
    yield "| varied | range of the fit | exponent of time | off by at most | exponent of memory | off by at most |"
    yield "|" + "---|" * 6
    for sweep in sweeps:
        own = [found for found in points if found.letter == sweep.letter]
        fits = [(fit(own, measured), misfit(own, measured)) for measured in MEASURES]
        sizes = [found.size for found in upper(own)] or [0]
        words = " | ".join("- | -" if law is None else f"{law[0]:.2f} | ×{off:.2f}" for law, off in fits)
        yield f"| {sweep.letter} | {min(sizes)} to {max(sizes)} | {words} |"


def panel(axes: Axes, points: Sequence[Point], measured: str, colour: str) -> None:
    """Measured points and the fitted line with its exponent.

    Squares are solves that more than one solver took part in; points that did not reach the gap are hollow.
    """
    for found in (found for found in points if found.gap is not None):
        face, marker = colour if found.reached else "white", "s" if "+" in found.solver else "o"
        axes.plot(found.size, getattr(found, measured), marker, color=colour, markerfacecolor=face)
    law = fit(points, measured)
    if law is not None:
        sizes = np.array([found.size for found in upper(points)])
        axes.plot(sizes, law[1] * sizes ** law[0], color=GREY, linestyle="--", linewidth=1.2)
        text = f"${points[0].letter}^{{{law[0]:.2f}}}$"
        axes.annotate(text, (0.06, 0.88), xycoords="axes fraction", fontsize=15, color=GREY)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain(axes)


def figure(sweeps: Sequence[Sweep], points: Sequence[Point], suffix: str) -> bytes:
    drawn = new_figure(3.2 * len(sweeps), 6.0)
    grid = drawn.subplots(len(MEASURES), len(sweeps), sharex="col", sharey="row", squeeze=False)
    for row, (measured, label) in zip(grid, MEASURES.items(), strict=True):
        row[0].set_ylabel(label, fontsize=12)
        for axes, sweep, colour in zip(row, sweeps, COLOURS, strict=False):
            panel(axes, [found for found in points if found.letter == sweep.letter], measured, colour)
    for above, below, sweep in zip(grid[0], grid[-1], sweeps, strict=True):
        above.set_title(f"{sweep.letter} grows\n{sweep.rest}", loc="left", fontsize=11)
        below.set_xlabel(sweep.letter, fontsize=12)
    named = {"kernel_admm alone": "o", "kernel_admm, then eta_newton": "s"}
    handles = [Line2D([], [], color=GREY, marker=marker, linestyle="", label=name) for name, marker in named.items()]
    handles.append(Line2D([], [], color=GREY, linestyle="--", label="fit to the upper half"))
    drawn.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure_bytes(drawn, suffix)
