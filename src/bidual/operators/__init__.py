"""Lifted operators. A new one is one file here."""

from bidual.operators.base import HasKernel, LiftedOperator
from bidual.operators.gated import GatedOperator, LinearOperator, SparseGatedOperator, gated_operator
from bidual.operators.neurons import NeuronOperator
from bidual.operators.pooled import PooledOperator

__all__ = [
    "GatedOperator",
    "HasKernel",
    "LiftedOperator",
    "LinearOperator",
    "NeuronOperator",
    "PooledOperator",
    "SparseGatedOperator",
    "gated_operator",
]
