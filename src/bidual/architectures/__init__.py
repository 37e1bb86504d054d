"""Network families. A new one is one file here (see docs/add_an_architecture.md)."""

from bidual.architectures.base import Architecture
from bidual.architectures.mlp import GatedMLP, LinearMLP

__all__ = ["Architecture", "GatedMLP", "LinearMLP"]
