"""What an experiment is, and what it finds: data, a figure and checked claims."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bidual.papers.reproduction.context import Context
from bidual.reporting.written import Claim

Scale = Literal["paper", "cpu", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True, eq=False)
class Finding:
    """What an experiment returns.

    Attributes:
        data: everything measured, of dataclasses, mappings, sequences, numbers and texts.
        claims: of the paper, checked.
        table: Markdown.
        draw: the figure as bytes in the format of a suffix such as ".png".
        configuration: what ran, of the same kinds as ``data``.
    """

    data: Any
    claims: tuple[Claim, ...]
    table: str
    draw: Callable[[str], bytes]
    configuration: Any


Study = Callable[[Scale, Context], Finding]


@dataclass(frozen=True)
class Experiment:
    """One row of published results.

    Attributes:
        row: its number, R1 to R15; T1 is a table of complexities.
        name: paper and figure, which is also the name of the module in ``bidual.papers.experiments``.
        title: what it is about, in one line.
        source: where the paper has it.
        seed: of data, gates and starts, or the first of several.
        study: runs it at a scale.
        needs: names of the data sets it reads.
    """

    row: str
    name: str
    title: str
    source: str
    seed: int
    study: Study
    needs: tuple[str, ...] = ()
