"""Gauges. A new one is one file here and one line in ``GAUGES``."""

from bidual.gauges.base import (
    BlockGauge,
    Bracket,
    Conic,
    EuclideanGroups,
    Factorised,
    Factors,
    FactorSteps,
    Gauge,
    Proximable,
)
from bidual.gauges.columns import LargestPerOutput, PerOutput
from bidual.gauges.group import Group
from bidual.gauges.nuclear import Nuclear
from bidual.gauges.pairs import output_gauge, pair_gauge
from bidual.gauges.rows import Entries, Largest, PerInput, RowGauge
from bidual.types import Blocks

_SHIPPED: tuple[type[Gauge], ...] = (Nuclear, Group, PerOutput, PerInput, Entries, Largest, LargestPerOutput)
GAUGES: dict[str, type[Gauge]] = {cls.name: cls for cls in _SHIPPED}

__all__ = [
    "GAUGES",
    "BlockGauge",
    "Blocks",
    "Bracket",
    "Conic",
    "Entries",
    "EuclideanGroups",
    "FactorSteps",
    "Factorised",
    "Factors",
    "Gauge",
    "Group",
    "Largest",
    "LargestPerOutput",
    "Nuclear",
    "PerInput",
    "PerOutput",
    "Proximable",
    "RowGauge",
    "output_gauge",
    "pair_gauge",
]
