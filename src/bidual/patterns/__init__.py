"""Activation patterns of ReLU gates, sampled or all of them (BM section 2.1, CP section 2)."""

from bidual.patterns.sampling import activations, distinct, sample_gates, with_constant

__all__ = ["activations", "distinct", "sample_gates", "with_constant"]
