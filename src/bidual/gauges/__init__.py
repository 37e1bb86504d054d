"""Gauges. A new one is one class with a name, here or anywhere else."""

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
from bidual.runtime.registry import Registry
from bidual.types import Blocks

GAUGES: Registry[Gauge] = Registry(Gauge, "gauge")

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
