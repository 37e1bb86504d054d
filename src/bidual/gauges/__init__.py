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
from bidual.gauges.group import Group
from bidual.gauges.norm_pairs import Entries, Largest, LargestPerOutput, PerInput, PerOutput, RowGauge
from bidual.gauges.nuclear import Nuclear
from bidual.numerics.norms import Norm
from bidual.runtime.registry import Registry

GAUGES: Registry[Gauge] = Registry(Gauge, "gauge")
_OUTPUTS: dict[str, type[Gauge]] = {"l1": PerOutput, "l2": Group, "linf": Largest}


def output_gauge(output: Norm) -> Gauge:
    """sum_j |z_j|_R on a dictionary of neurons, blocks (1, c), whose hidden norm is one."""
    return _OUTPUTS[output.name]()


__all__ = [
    "GAUGES",
    "BlockGauge",
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
]
