"""Gauges. A new one is one file here and one line in ``GAUGES``."""

from bidual.gauges.base import (
    BlockGauge,
    Blocks,
    Bracket,
    Conic,
    EuclideanGroups,
    Factorised,
    Factors,
    Gauge,
    Proximable,
)
from bidual.gauges.group import Group
from bidual.gauges.nuclear import Nuclear
from bidual.gauges.per_output import PerOutput

GAUGES: dict[str, type[Gauge]] = {cls.name: cls for cls in (Nuclear, Group, PerOutput)}

__all__ = [
    "GAUGES",
    "BlockGauge",
    "Blocks",
    "Bracket",
    "Conic",
    "EuclideanGroups",
    "Factorised",
    "Factors",
    "Gauge",
    "Group",
    "Nuclear",
    "PerOutput",
    "Proximable",
]
