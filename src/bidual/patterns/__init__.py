"""Activation patterns of ReLU gates, sampled or all of them (BM section 2.1, CP section 2)."""

from bidual.patterns.enumeration import Patterns, check_enumerable, count_bound, enumerate, enumeration_bytes
from bidual.patterns.sampling import activations, distinct, sample_gates, with_constant

__all__ = [
    "Patterns",
    "activations",
    "check_enumerable",
    "count_bound",
    "distinct",
    "enumerate",
    "enumeration_bytes",
    "sample_gates",
    "with_constant",
]
